# An image of one's own for sandboxes: any Linux system with a shell, plus the four things below.
#
#   docker build -f docker/own.Dockerfile --build-arg BASE=debian:bookworm-slim -t my-sandbox:1 .
#   SANDBOX_IMAGES_ALLOWED=my-sandbox:1 operator run      # by its digest, sha256:…, nobody can exchange it later
#   sandbox create --service 1 --image my-sandbox:1
#
# Commands run as user 1000 on a read-only root: they write to /workspace, /home/agent and /tmp only.

ARG SIDECAR=agent-sandbox-sidecar:dev
ARG BASE=agent-sandbox-base:bookworm
FROM ${SIDECAR} AS sidecar
FROM ${BASE}

# 1. User and group 1000, called agent, whom /workspace and /home/agent belong to, and 1001, called runner, which is
#    reserved. (On Alpine: addgroup, adduser, chown.)
RUN groupadd --gid 1000 agent \
 && useradd --uid 1000 --gid 1000 --home-dir /home/agent --create-home agent \
 && groupadd --gid 1001 runner \
 && useradd --uid 1001 --gid 1001 --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin runner \
 && install --directory --owner agent --group agent --mode 0755 /home/agent /workspace

# 2. The sidecar, which is static and runs on any of them.
COPY --from=sidecar /usr/local/bin/sandbox-sidecar /usr/local/bin/sandbox-sidecar

# 3. What the image is for.
RUN printf '#!/bin/sh\necho "hello from an image of my own"\n' > /usr/local/bin/hello && chmod 0755 /usr/local/bin/hello

# 4. The sidecar is what starts; the operator says everything else.
ENV AGENT_WORKSPACE_ROOT=/workspace LANG=C.UTF-8
WORKDIR /workspace
ENTRYPOINT ["/usr/local/bin/sandbox-sidecar"]
