# The image of every sandbox: a Debian base, the tools of a variant, the static sidecar, the user that commands run as.
#
# `cargo xtask setup` makes the slim variant, `cargo xtask setup --full` the full one too. Both leave the folder that the
# image is built from (sandbox-sidecar, sandbox-agentd, packages, files/, sbom.json) in the cache, so it can be built on another base,
# whose packages the bill of materials then does not tell:
#
#   docker build -f docker/sidecar.Dockerfile --build-arg BASE=debian:bookworm \
#     -t agent-sandbox-sidecar:mine ~/.cache/agent-sandbox/image-full
#
# Packages that the base has are not fetched: on a base that set-up made, the build needs no network.
# The operator runs it hardened and talks to it over a socket; alone it listens on port 8080:
#
#   docker run -p 8080:8080 -e SIDECAR_PORT=8080 -e AGENT_WORKSPACE_ROOT=/workspace agent-sandbox-sidecar:dev

ARG BASE=agent-sandbox-base:bookworm
FROM ${BASE} AS tools

# New volumes take owner and mode of these folders. The runner is reserved: nothing runs as it yet.
RUN groupadd --gid 1000 agent \
 && useradd --uid 1000 --gid 1000 --home-dir /home/agent --create-home --shell /bin/sh agent \
 && groupadd --gid 1001 runner \
 && useradd --uid 1001 --gid 1001 --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin runner \
 && install --directory --owner agent --group agent --mode 0755 /home/agent /workspace \
 && install --directory --mode 0700 /storage

COPY packages /usr/share/agent-sandbox/packages
RUN missing= \
 && for package in $(grep --invert-match '^#' /usr/share/agent-sandbox/packages); do \
      dpkg-query --show --showformat '${Status}' "$package" 2> /dev/null | grep --quiet ' installed$' \
        || missing="$missing $package"; \
    done \
 && if [ -n "$missing" ]; then \
      apt-get update \
      && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $missing \
      && rm -rf /var/lib/apt/lists/*; \
    fi

COPY files/ /

FROM tools

COPY sbom.json /usr/share/agent-sandbox/sbom.json
COPY sandbox-sidecar sandbox-agentd /usr/local/bin/

# The build fails where the binary is not the one that the label names; empty leaves it unnamed.
ARG SIDECAR_SHA256=
RUN test -x /usr/local/bin/sandbox-sidecar \
 && if [ -n "${SIDECAR_SHA256}" ]; then echo "${SIDECAR_SHA256}  /usr/local/bin/sandbox-sidecar" | sha256sum --check --quiet; fi

ARG SIDECAR_VERSION=dev
ARG VARIANT=custom
LABEL org.opencontainers.image.title="agent-sandbox-sidecar" \
      org.opencontainers.image.version="${SIDECAR_VERSION}" \
      network.tangle.sandbox.variant="${VARIANT}" \
      network.tangle.sandbox.sidecar.sha256="${SIDECAR_SHA256}"

ENV AGENT_WORKSPACE_ROOT=/workspace STORAGE_PATH=/storage LANG=C.UTF-8
WORKDIR /workspace
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=5s --retries=3 CMD ["/usr/local/bin/sandbox-sidecar", "--healthcheck"]
ENTRYPOINT ["/usr/local/bin/sandbox-sidecar"]
