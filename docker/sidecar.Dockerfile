# The image of every sandbox: a Debian base, the static sidecar, the user that commands run as.
#
#   docker build --network none -f docker/sidecar.Dockerfile \
#     --build-arg BASE=agent-sandbox-base:bookworm \
#     --build-arg SIDECAR_SHA256=<sha256 of the binary> --build-arg SIDECAR_VERSION=<version> \
#     -t agent-sandbox-sidecar:dev <folder that holds the binary sandbox-sidecar>
#
# The operator runs it hardened and talks to it over a socket; alone it listens on port 8080:
#
#   docker run -p 8080:8080 -e SIDECAR_PORT=8080 -e AGENT_WORKSPACE_ROOT=/workspace agent-sandbox-sidecar:dev

ARG BASE=agent-sandbox-base:bookworm
FROM ${BASE}

# New volumes take owner and mode of these folders.
RUN groupadd --gid 1000 agent \
 && useradd --uid 1000 --gid 1000 --home-dir /home/agent --create-home --shell /bin/sh agent \
 && install --directory --owner agent --group agent --mode 0755 /home/agent /workspace

COPY sandbox-sidecar /usr/local/bin/sandbox-sidecar

# The build fails where the binary is not the one that the label names; empty leaves it unnamed.
ARG SIDECAR_SHA256=
RUN test -x /usr/local/bin/sandbox-sidecar \
 && if [ -n "${SIDECAR_SHA256}" ]; then echo "${SIDECAR_SHA256}  /usr/local/bin/sandbox-sidecar" | sha256sum --check --quiet; fi

ARG SIDECAR_VERSION=dev
LABEL org.opencontainers.image.title="agent-sandbox-sidecar" \
      org.opencontainers.image.version="${SIDECAR_VERSION}" \
      network.tangle.sandbox.sidecar.sha256="${SIDECAR_SHA256}"

ENV AGENT_WORKSPACE_ROOT=/workspace
WORKDIR /workspace
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=5s --retries=3 CMD ["/usr/local/bin/sandbox-sidecar", "--healthcheck"]
ENTRYPOINT ["/usr/local/bin/sandbox-sidecar"]
