// Ordinary features through nats.go. Prints "ok NAME" or "FAIL NAME: why" for each check.
package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const wait = 5 * time.Second

var (
	plain     = os.Getenv("INTEROP_PLAIN")
	locked    = os.Getenv("INTEROP_LOCKED")
	tlsURL    = os.Getenv("INTEROP_TLS")
	restarted = os.Getenv("INTEROP_RESTARTED")
	ca        = os.Getenv("INTEROP_CA")
)

func expect(held bool, format string, args ...any) {
	if !held {
		panic(fmt.Sprintf(format, args...))
	}
}

func must[T any](value T, err error) T {
	expect(err == nil, "%v", err)
	return value
}

func dial() *nats.Conn { return must(nats.Connect(plain)) }

func connectInfo() {
	nc := must(nats.Connect(plain, nats.Name("interop")))
	defer nc.Close()
	expect(nc.MaxPayload() == 1048576, "max payload %d", nc.MaxPayload())
	expect(nc.HeadersSupported(), "no headers")
	id := must(nc.GetClientID())
	expect(id > 0 && strings.HasPrefix(nc.ConnectedServerId(), "N"), "ids")
	expect(must(nc.GetClientIP()).IsLoopback(), "client ip")
}

func publishSubscribe() {
	nc := dial()
	defer nc.Close()
	sub := must(nc.SubscribeSync("pubsub.one"))
	nc.PublishRequest("pubsub.one", "back", []byte("hello"))
	msg := must(sub.NextMsg(wait))
	expect(msg.Subject == "pubsub.one" && msg.Reply == "back" && string(msg.Data) == "hello", "%v", msg)
}

func wildcards() {
	nc := dial()
	defer nc.Close()
	star, tail := must(nc.SubscribeSync("wild.*.x")), must(nc.SubscribeSync("wild.>"))
	nc.Publish("wild.a.x", []byte("1"))
	nc.Publish("wild.a.b.x", []byte("2"))
	expect(string(must(star.NextMsg(wait)).Data) == "1", "star")
	for _, want := range []string{"1", "2"} {
		expect(string(must(tail.NextMsg(wait)).Data) == want, "tail")
	}
	pending, _, _ := star.Pending()
	expect(pending == 0, "star has %d more", pending)
}

func queueGroup() {
	nc := dial()
	defer nc.Close()
	var counts [3]atomic.Int64
	total := func() int64 { return counts[0].Load() + counts[1].Load() + counts[2].Load() }
	done := make(chan bool, 300)
	for index := range counts {
		must(nc.QueueSubscribe("jobs", "workers", func(*nats.Msg) { counts[index].Add(1); done <- true }))
	}
	for range 300 {
		nc.Publish("jobs", []byte("x"))
	}
	for range 300 {
		<-done
	}
	nc.Flush()
	expect(total() == 300, "total %d", total())
	for index := range counts {
		expect(counts[index].Load() > 0, "member %d had none", index)
	}
}

func requestReply() {
	nc := dial()
	defer nc.Close()
	must(nc.Subscribe("service", func(m *nats.Msg) { m.Respond(bytes.ToUpper(m.Data)) }))
	for n := range 50 {
		text := fmt.Sprintf("q%d", n)
		answer := must(nc.Request("service", []byte(text), wait))
		expect(string(answer.Data) == strings.ToUpper(text), "%s", answer.Data)
	}
}

func headers() {
	nc := dial()
	defer nc.Close()
	sub := must(nc.SubscribeSync("headed"))
	msg := nats.NewMsg("headed")
	msg.Data = []byte("body")
	msg.Header.Add("Key", "one")
	msg.Header.Add("Key", "two")
	msg.Header["lower-key"] = []string{"3"}
	nc.PublishMsg(msg)
	got := must(sub.NextMsg(wait))
	expect(len(got.Header["Key"]) == 2 && got.Header["lower-key"][0] == "3", "%v", got.Header)
	expect(string(got.Data) == "body", "%s", got.Data)
}

func noResponders() {
	nc := dial()
	defer nc.Close()
	_, err := nc.Request("nobody.here", []byte("?"), wait)
	expect(errors.Is(err, nats.ErrNoResponders), "%v", err)
}

func unsubscribeMax() {
	nc := dial()
	defer nc.Close()
	sub := must(nc.SubscribeSync("limited"))
	sub.AutoUnsubscribe(3)
	for range 5 {
		nc.Publish("limited", []byte("x"))
	}
	for range 3 {
		must(sub.NextMsg(wait))
	}
	nc.Flush()
	_, err := sub.NextMsg(time.Millisecond)
	expect(errors.Is(err, nats.ErrMaxMessages) || errors.Is(err, nats.ErrBadSubscription), "%v", err)
}

func drain() {
	closed := make(chan bool)
	nc := must(nats.Connect(plain, nats.ClosedHandler(func(*nats.Conn) { close(closed) })))
	var got atomic.Int64
	must(nc.Subscribe("drained", func(*nats.Msg) { got.Add(1) }))
	for range 100 {
		nc.Publish("drained", []byte("x"))
	}
	nc.Drain()
	select {
	case <-closed:
	case <-time.After(wait):
		panic("not closed")
	}
	expect(got.Load() == 100, "got %d", got.Load())
}

func largeMessage() {
	nc := dial()
	defer nc.Close()
	sub := must(nc.SubscribeSync("large"))
	data := make([]byte, 1048576)
	rand.Read(data)
	nc.Publish("large", data)
	expect(bytes.Equal(must(sub.NextMsg(wait)).Data, data), "other bytes")
}

func maxPayload() {
	nc := must(nats.Connect(locked, nats.UserInfo("app", "secret")))
	defer nc.Close()
	expect(nc.MaxPayload() == 1024, "max payload %d", nc.MaxPayload())
	err := nc.Publish("app.x", make([]byte, 1025))
	expect(errors.Is(err, nats.ErrMaxPayload), "%v", err)
}

func flushRTT() {
	nc := dial()
	defer nc.Close()
	for range 10 {
		nc.Publish("flushed", []byte("x"))
		expect(nc.FlushTimeout(wait) == nil, "flush")
	}
	expect(must(nc.RTT()) > 0, "rtt")
}

func authRefused() {
	_, err := nats.Connect(locked, nats.UserInfo("app", "wrong"))
	expect(errors.Is(err, nats.ErrAuthorization), "%v", err)
}

func permissions() {
	failed := make(chan error, 4)
	note := nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { failed <- err })
	nc := must(nats.Connect(locked, nats.UserInfo("app", "secret"), note))
	defer nc.Close()
	nc.Publish("other.x", []byte("x"))
	select {
	case err := <-failed:
		expect(errors.Is(err, nats.ErrPermissionViolation), "%v", err)
	case <-time.After(wait):
		panic("no error")
	}
	sub := must(nc.SubscribeSync("app.x"))
	nc.Publish("app.x", []byte("still here"))
	must(sub.NextMsg(wait))
}

func tls() {
	nc := must(nats.Connect(tlsURL, nats.RootCAs(ca)))
	defer nc.Close()
	sub := must(nc.SubscribeSync("secret"))
	nc.Publish("secret", make([]byte, 100_000))
	expect(len(must(sub.NextMsg(wait)).Data) == 100_000, "size")
}

func reconnect() {
	again := make(chan bool, 1)
	nc := must(nats.Connect(restarted, nats.ReconnectWait(50*time.Millisecond), nats.MaxReconnects(-1),
		nats.ReconnectHandler(func(*nats.Conn) { again <- true })))
	defer nc.Close()
	sub := must(nc.SubscribeSync("after.restart"))
	nc.Flush()
	fmt.Println("restart")
	select {
	case <-again:
	case <-time.After(wait):
		panic("not reconnected")
	}
	nc.Publish("after.restart", []byte("again"))
	must(sub.NextMsg(wait))
}

func run(name string, check func()) {
	defer func() {
		if problem := recover(); problem != nil {
			fmt.Printf("FAIL %s: %v\n", name, problem)
		} else {
			fmt.Printf("ok %s\n", name)
		}
	}()
	check()
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "streams" {
		streams()
		return
	}
	run("connect_info", connectInfo)
	run("publish_subscribe", publishSubscribe)
	run("wildcards", wildcards)
	run("queue_group", queueGroup)
	run("request_reply", requestReply)
	run("headers", headers)
	run("no_responders", noResponders)
	run("unsubscribe_max", unsubscribeMax)
	run("drain", drain)
	run("large_message", largeMessage)
	run("max_payload", maxPayload)
	run("flush_rtt", flushRTT)
	run("auth_refused", authRefused)
	run("permissions", permissions)
	run("tls", tls)
	run("reconnect", reconnect)
}
