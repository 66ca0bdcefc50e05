# docker build -t laconic .
# docker run --rm -v "$PWD:/data" laconic train mine.toml
#
# The first stage builds the Debian package; the second installs it and nothing else.
FROM debian:12 AS builder
WORKDIR /src
COPY . .
RUN ./dev package

FROM debian:12-slim
COPY --from=builder /src/build/laconic_*.deb /tmp/
RUN apt-get update \
 && apt-get install -y --no-install-recommends /tmp/laconic_*.deb \
 && rm -rf /tmp/laconic_*.deb /var/lib/apt/lists/*
WORKDIR /data
ENTRYPOINT ["laconic"]
CMD ["--help"]
