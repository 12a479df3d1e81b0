"""The shipped programs are valid, complete, and what their script makes."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
NAMES = ("gpt2_block", "resnet_block", "mlp_train_step")


@pytest.fixture(scope="module", autouse=True)
def _examples_importable():
    """The example scripts import each other as scripts do: from their own folder."""
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))


@pytest.fixture(scope="module")
def inputs() -> ModuleType:
    return importlib.import_module("inputs")


@pytest.mark.parametrize("variant", ["graph", "tiny"])
@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_those_of_the_results(name, variant, inputs):
    example = inputs.load(name, variant)
    assert all(np.isfinite(array).all() for array in example.inputs)
    assert bool(example.expected) == (variant == "graph")
    assert all(array.dtype in (np.float64, np.int32) for array in example.expected)


def test_changed_inputs_are_rejected(tmp_path, monkeypatch, inputs):
    description = json.loads((EXAMPLES / "resnet_block" / "graph.json").read_text())
    description["seed"] += 1
    (tmp_path / "resnet_block").mkdir()
    (tmp_path / "resnet_block" / "graph.json").write_text(json.dumps(description))
    monkeypatch.setattr(inputs, "HERE", tmp_path)
    with pytest.raises(ValueError, match="differ"):
        inputs.load("resnet_block")


@pytest.mark.parametrize("variant", ["graph", "tiny"])
@pytest.mark.parametrize("name", NAMES)
def test_program_parses_and_all_of_it_has_a_lowering(name, variant):
    ir, passmanager, _ = _mlir()
    with ir.Context() as context:
        _register(context)
        module = ir.Module.parse((EXAMPLES / name / f"{variant}.mlir").read_text())
        passes = f"inline,symbol-dce,{LEGALIZE_CHLO},stablehlo-legalize-to-linalg"
        passmanager.PassManager.parse(f"builtin.module({passes})").run(module.operation)
        assert "stablehlo." not in str(module)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
def test_tiny_twin_computes_what_jax_computes(name, inputs):
    """The text means what the function means: StableHLO's reference interpreter against JAX in f64."""
    jax = pytest.importorskip("jax", reason="the reference is JAX itself")
    maker = importlib.import_module("make_graphs")
    recipe = next(each for each in maker.RECIPES if each.name == name)
    example = inputs.load(name, "tiny")
    expected = maker.reference(recipe.functions["tiny"], example.inputs)

    got = _interpret(example.program, example.inputs)

    assert len(got) == len(expected)
    for ours, reference in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, reference, rtol=recipe.rtol, atol=recipe.atol)
    assert jax.config.jax_enable_x64 is False


@pytest.mark.parametrize("variant", ["graph", "tiny"])
@pytest.mark.parametrize("name", NAMES)
def test_program_is_what_the_script_makes(name, variant, inputs):
    jax = pytest.importorskip("jax", reason="the script runs JAX")
    made_by = json.loads((EXAMPLES / name / "graph.json").read_text())["made_by"]
    if made_by != f"jax {jax.__version__}":
        pytest.skip(f"made by {made_by}; other versions print other text")
    maker = importlib.import_module("make_graphs")
    recipe = next(each for each in maker.RECIPES if each.name == name)
    example = inputs.load(name, variant)
    assert maker.program(recipe.functions[variant], example.inputs) == example.program


def _mlir():
    ir = pytest.importorskip("torch_mlir.ir", reason="parsing needs the server extra")
    passmanager = importlib.import_module("torch_mlir.passmanager")
    return ir, passmanager, importlib.import_module("torch_mlir._mlir_libs._stablehlo")


LEGALIZE_CHLO = "func.func(chlo-legalize-to-stablehlo)"


def _register(context) -> None:
    torch = importlib.import_module("torch_mlir.dialects.torch")
    ir, passmanager, stablehlo = _mlir()
    stablehlo.register_dialect(context)
    stablehlo.register_stablehlo_passes()
    torch.register_dialect(context)
    context.load_all_available_dialects()
    # Nothing registers CHLO by itself; this pass makes CHLO operations and so loads their dialect.
    with ir.Location.unknown():
        empty = ir.Module.create()
    passmanager.PassManager.parse("builtin.module(func.func(convert-torch-to-stablehlo))").run(
        empty.operation
    )


def _interpret(program, arrays):
    ir, passmanager, stablehlo = _mlir()
    with ir.Context() as context, ir.Location.unknown():
        _register(context)
        module = ir.Module.parse(program)
        passmanager.PassManager.parse(f"builtin.module({LEGALIZE_CHLO})").run(module.operation)
        arguments = [
            ir.DenseElementsAttr.get(np.array(array, order="C"), type=_tensor_type(ir, array))
            for array in arrays
        ]
        return [np.array(result) for result in stablehlo.eval_module(module, arguments)]


def _tensor_type(ir, array):
    element = ir.F32Type.get() if array.dtype == np.float32 else ir.IntegerType.get_signless(32)
    return ir.RankedTensorType.get(array.shape, element)
