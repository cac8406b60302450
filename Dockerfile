# Stage 1 makes wheels of Martlet and of all it needs, stage 2 holds nothing but Python and those.
#   docker build -t martlet .
#   docker run -p 4222:4222 -p 8222:8222 martlet -js -sd /data
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN sh /src/deploy/build-wheels.sh /src /wheels
RUN sh /src/deploy/install-wheels.sh /wheels /opt/martlet

FROM ${PYTHON_IMAGE}
RUN useradd --system --uid 10001 --user-group --home-dir /data --shell /usr/sbin/nologin nats \
    && install -d -o nats -g nats -m 0750 /data
COPY --from=build /opt/martlet /opt/martlet
COPY deploy/container.conf /etc/nats/nats-server.conf
COPY --chmod=0755 deploy/entrypoint.sh /usr/local/bin/martlet-entrypoint
COPY --chmod=0755 deploy/healthcheck.py /usr/local/bin/martlet-healthcheck
# By either name: scripts written for the reference image call nats-server, for instance --signal.
RUN ln -s /opt/martlet/bin/martlet /usr/local/bin/martlet \
    && ln -s /opt/martlet/bin/martlet /usr/local/bin/nats-server
USER nats
WORKDIR /data
VOLUME /data
EXPOSE 4222 8222 6222
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD ["/opt/martlet/bin/python", "/usr/local/bin/martlet-healthcheck"]
ENTRYPOINT ["/usr/local/bin/martlet-entrypoint"]
CMD ["--config", "/etc/nats/nats-server.conf"]
