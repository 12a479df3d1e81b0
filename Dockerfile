# kcache's server: built in one stage, run without build tools and without root in the other.
#
#   docker build -t kcache .
#   docker run --user 10001 -v kcache:/var/lib/kcache -p 127.0.0.1:7420:7420 kcache \
#       serve --listen 0.0.0.0:7420 ...          (with what docs/operate/server.md asks for at such an address)
#
# Without arguments it listens inside the container only: other containers of the same pod reach it.

FROM python:3.13-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends binutils && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN PYTHON=python3 /src/deploy/build_image.sh /opt/kcache server,postgres,objects

FROM python:3.13-slim
# binutils: the linker of compiled kernels.
RUN apt-get update && apt-get install -y --no-install-recommends binutils && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --create-home --home-dir /var/lib/kcache kcache \
    && chmod 0700 /var/lib/kcache
COPY --from=build /opt/kcache /opt/kcache
ENV PATH="/opt/kcache/bin:$PATH" PYTHONUNBUFFERED=1
ENV KCACHE_LISTEN=127.0.0.1:7420 KCACHE_ADDR=127.0.0.1:7420 KCACHE_DB=sqlite:////var/lib/kcache/kcache.sqlite
USER 10001
WORKDIR /var/lib/kcache
VOLUME /var/lib/kcache
EXPOSE 7420
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["kcache", "doctor", "--health"]
ENTRYPOINT ["kcache"]
CMD ["serve"]
