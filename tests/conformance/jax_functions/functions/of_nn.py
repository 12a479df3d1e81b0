"""``jax.nn`` and ``jax.scipy.special``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import nn
from jax.scipy import special

from tests.conformance.jax_functions.values import Given, b, c, f, n, p, q, u, words

#: A function, and what it is given.
Case = tuple[Any, ...]

_ACTIVATIONS = words(
    "relu relu6 sigmoid softplus soft_sign silu swish log_sigmoid leaky_relu hard_sigmoid hard_silu "
    "hard_swish hard_tanh elu celu selu gelu glu squareplus mish identity sparse_plus sparse_sigmoid "
    "softmax log_softmax logsumexp standardize log1mexp"
)

NN: dict[str, Case] = {
    **{name: (getattr(nn, name), f(3, 6)) for name in _ACTIVATIONS if hasattr(nn, name)},
    "log1mexp": (nn.log1mexp, p(3, 6)),
    "gelu exact": (lambda x: nn.gelu(x, approximate=False), f(3, 6)),
    "one_hot": (lambda x: nn.one_hot(x, 5), n(3)),
    "softmax with where": (lambda x, m: nn.softmax(x, where=m), f(3, 6), b(3, 6)),
    "dot_product_attention": (nn.dot_product_attention, f(2, 5, 2, 4), f(2, 5, 2, 4), f(2, 5, 2, 4)),
    "causal attention": (
        lambda q, k, v: nn.dot_product_attention(q, k, v, is_causal=True),
        f(2, 5, 2, 4),
        f(2, 5, 2, 4),
        f(2, 5, 2, 4),
    ),
    "attention with bias": (
        lambda q, k, v, x: nn.dot_product_attention(q, k, v, bias=x),
        f(2, 5, 2, 4),
        f(2, 5, 2, 4),
        f(2, 5, 2, 4),
        f(2, 2, 5, 5),
    ),
    "initializers": (lambda x: x @ nn.initializers.glorot_normal()(jax.random.key(0), (6, 3)), f(3, 6)),
}

_WHOLE = words("entr erf erfc expit gammaln i0 i0e i1 i1e log_ndtr ndtr erfcx wofz dawsn")

SPECIAL: dict[str, Case] = {
    **{name: (getattr(special, name), f(3, 5)) for name in _WHOLE if hasattr(special, name)},
    "entr": (special.entr, p(3, 5)),
    "digamma": (special.digamma, p(3, 5)),
    "psi": (special.digamma, p(3, 5)),
    "gamma": (special.gamma, p(3, 5)),
    "gammasgn": (special.gammasgn, f(3, 5)),
    "loggamma": (special.gammaln, p(3, 5)),
    "factorial": (special.factorial, p(3, 5)),
    "erfinv": (special.erfinv, u(3, 5)),
    "logit": (special.logit, q(3, 5)),
    "ndtri": (special.ndtri, q(3, 5)),
    "beta": (special.beta, p(3, 5), p(3, 5)),
    "betaln": (special.betaln, p(3, 5), p(3, 5)),
    "betainc": (special.betainc, p(3, 5), p(3, 5), q(3, 5)),
    "gammainc": (special.gammainc, p(3, 5), p(3, 5)),
    "gammaincc": (special.gammaincc, p(3, 5), p(3, 5)),
    "kl_div": (special.kl_div, p(3, 5), p(3, 5)),
    "rel_entr": (special.rel_entr, p(3, 5), p(3, 5)),
    "xlogy": (special.xlogy, p(3, 5), p(3, 5)),
    "xlog1py": (special.xlog1py, p(3, 5), p(3, 5)),
    "zeta": (special.zeta, Given((3, 5), 1.5, 4.0), p(3, 5)),
    "polygamma": (lambda x: special.polygamma(2, x), p(3, 5)),
    "multigammaln": (lambda x: special.multigammaln(x + 2, 3), p(3, 5)),
    "poch": (special.poch, p(3, 5), p(3, 5)),
    "logsumexp": (special.logsumexp, f(3, 5)),
    "softmax": (special.softmax, f(3, 5)),
    "log_softmax": (special.log_softmax, f(3, 5)),
    "spence": (special.spence, p(3, 5)),
    "bernoulli": (lambda x: x * special.bernoulli(6)[0], f(3)),
    "exp1": (special.exp1, p(3, 5)),
    "expi": (special.expi, p(3, 5)),
    "expn": (lambda x: special.expn(2, x), p(3, 5)),
    "hyp1f1": (lambda x: special.hyp1f1(0.7, 1.4, x), u(4)),
    "hyp2f1": (lambda x: special.hyp2f1(0.7, 1.4, 2.1, x), u(4)),
    "bessel_jn": (lambda x: special.bessel_jn(x, v=2, n_iter=20), p(4)),
    "fresnel": (special.fresnel, p(3, 5)),
    "sici": (special.sici, p(3, 5)),
    "sph_harm_y": (
        lambda t, f: special.sph_harm_y(jnp.array([2]), jnp.array([1]), t, f, n_max=2),
        p(1),
        p(1),
    ),
    "lpmn_values": (lambda x: special.lpmn_values(2, 2, x, is_normalized=False), u(4)),
    "complex expit": (special.expit, c(3, 5)),
}
