module martlet.test/interop/cli

go 1.25

require github.com/nats-io/natscli v0.4.0
