# moed in a container: build stage and a small runtime, both from the same Debian 12 base (amd64 or arm64, Jetson included).
#   docker build -t moed .                                        # from Docker's Debian image
#   buildah build --format docker --build-arg BASE=localhost/debian12 -t moed .   # from a base of your own (debootstrap bookworm)
# With the compute backend "cuda": an image that has a toolkit from 12.6 on below /usr/local, for this architecture (on a Jetson the
# l4t-jetpack of its JetPack). It gives nvcc, headers and a static library; nothing of it is in the runtime image.
#   docker build --build-arg TOOLKIT=nvidia/cuda:12.6.3-devel-ubuntu22.04 --build-arg MOED_CUDA=ON -t moed .
# deploy/compose.cuda.yaml builds and starts it.
ARG BASE=debian:12-slim
ARG TOOLKIT=${BASE}

FROM ${TOOLKIT} AS toolkit

FROM ${BASE} AS build
ARG MOED_CUDA=AUTO
ARG MOED_CUDA_ARCHITECTURES=80-real;87-real;90
WORKDIR /src
COPY tools/packages.sh tools/packages.sh
RUN bash tools/packages.sh build
COPY . .
RUN --mount=type=bind,from=toolkit,source=/usr/local,target=/usr/local \
    cmake --preset release -DMOED_BUILD_TESTS=OFF -DMOED_CUDA=${MOED_CUDA} \
      "-DMOED_CUDA_ARCHITECTURES=${MOED_CUDA_ARCHITECTURES}" \
 && cmake --build --preset release --target moed moed-http moectl moed-pack moed-plan \
 && DESTDIR=/install cmake --install build/release --prefix /usr --strip

FROM ${BASE} AS runtime
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
      libabsl20220623 libcivetweb1 libfmt9 libgrpc++1.51 libgrpc29 libpcre2-8-0 libprometheus-cpp-core1.0 libprotobuf32 \
      libseccomp2 libspdlog1.10 libssl3 libstdc++6 liburing2 libutf8proc2 libxxhash0 libzstd1 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin moed \
 && install -d -o moed -g moed /cache
COPY --from=build /install/usr/ /usr/
COPY deploy/healthcheck.sh /usr/share/moed/healthcheck.sh
# A library that the list above lacks ends the build here, not the container later.
RUN ! ldd /usr/bin/moed /usr/bin/moed-http /usr/bin/moectl /usr/bin/moed-pack /usr/bin/moed-plan | grep 'not found'
USER 10001
# The root file system may be read-only: moed writes nothing but its log to standard output. The store is mounted at /models.
# `docker run -it -v moed-cache:/cache ... moed run MODEL` packs into /cache, and needs a /tmp for its socket.
EXPOSE 50051 9464 8080
# gRPC is reached from within the container alone until MOED_LISTEN says otherwise, with TLS and tokens, or MOED_INSECURE=on where the
# network is trusted (docs/security.md). Metrics are for the Prometheus beside it.
ENV MOED_METRICS_LISTEN=0.0.0.0:9464 MOED_CACHE_DIR=/cache
# What the NVIDIA container runtime gives where it is the one that starts this; without it they say nothing.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["sh", "/usr/share/moed/healthcheck.sh"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["moed"]
CMD ["--store", "/models/model.moed"]
