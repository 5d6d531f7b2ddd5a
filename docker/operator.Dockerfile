# The operator in a container, as `docker/compose.yaml` starts it.
#
#   cargo build --release --bin operator            # on Debian bookworm, whose C library the image has
#   docker build -f docker/operator.Dockerfile --build-arg BASE=debian:bookworm-slim \
#     -t agent-sandbox-operator:dev target/release
#
# `cargo xtask setup` makes a base that has the packages already, for engines that reach no registry: with it, add
# `--network none` and leave BASE out. The operator tells the engine which folders sandboxes see, so those of RUN_DIR and
# DATA_DIR must have the same path inside as on the host.

ARG BASE=agent-sandbox-base:bookworm
FROM ${BASE}

# Certificates to reach nodes by TLS; mount, losetup and mkfs.ext4 where disks of sandboxes are limited by loop devices.
RUN missing= \
 && for package in ca-certificates e2fsprogs mount; do \
      dpkg-query --show --showformat '${Status}' "$package" 2> /dev/null | grep --quiet ' installed$' \
        || missing="$missing $package"; \
    done \
 && if [ -n "$missing" ]; then \
      apt-get update \
      && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $missing \
      && rm -rf /var/lib/apt/lists/*; \
    fi

COPY operator /usr/local/bin/operator

LABEL org.opencontainers.image.title="agent-sandbox-operator"
ENV DATA_DIR=/var/lib/agent-sandbox \
    RUN_DIR=/run/agent-sandbox \
    KEYSTORE_URI=/var/lib/agent-sandbox/keystore \
    API_LISTEN=127.0.0.1:9944
STOPSIGNAL SIGTERM
# Whether the process serves, not whether chain and engine answer: it waits for those, and a restart would not help.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["bash", "-c", "exec 3<> /dev/tcp/${API_LISTEN%:*}/${API_LISTEN##*:} && printf 'GET /health HTTP/1.0\r\n\r\n' >&3 && head -n 1 <&3 | grep -q ' 200 '"]
ENTRYPOINT ["/usr/local/bin/operator"]
CMD ["run"]
