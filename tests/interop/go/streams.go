// Consumers, key-value buckets and object stores through nats.go.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Opens a connection and a stream of its own with count messages.
func streamed(name string, count int) (context.Context, jetstream.JetStream, jetstream.Stream, func()) {
	nc := must(nats.Connect(os.Getenv("INTEROP_STREAMS"), nats.ReconnectWait(50*time.Millisecond), nats.MaxReconnects(-1)))
	ctx, cancel := context.WithTimeout(context.Background(), 5*wait)
	js := must(jetstream.New(nc))
	stream := must(js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}))
	for n := range count {
		must(js.Publish(ctx, fmt.Sprintf("%s.%d", name, n%3), fmt.Appendf(nil, "%d", n)))
	}
	return ctx, js, stream, func() { js.DeleteStream(ctx, name); cancel(); nc.Close() }
}

func number(n int) string { return fmt.Sprint(n) }

func streamFetch() {
	ctx, _, stream, done := streamed("fetch", 25)
	defer done()
	consumer := must(stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy}))
	count := 0
	for count < 25 {
		batch := must(consumer.Fetch(10, jetstream.FetchMaxWait(time.Second)))
		for msg := range batch.Messages() {
			expect(string(msg.Data()) == number(count), "%s at %d", msg.Data(), count)
			expect(msg.DoubleAck(ctx) == nil, "ack")
			count++
		}
		expect(batch.Error() == nil, "%v", batch.Error())
	}
	info := must(consumer.Info(ctx))
	expect(info.NumPending == 0 && info.NumAckPending == 0 && info.AckFloor.Stream == 25, "%v", info)
	empty := must(consumer.FetchNoWait(1))
	expect(<-empty.Messages() == nil && empty.Error() == nil, "a message from nowhere: %v", empty.Error())
	bounded := must(stream.CreateConsumer(ctx, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}))
	some := must(bounded.FetchBytes(200, jetstream.FetchMaxWait(200*time.Millisecond)))
	count = 0
	for range some.Messages() {
		count++
	}
	expect(count > 0 && count < 25, "%d by bytes", count)
}

func streamConsume() {
	ctx, js, stream, done := streamed("consume", 500)
	defer done()
	consumer := must(stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy}))
	heard := make(chan jetstream.Msg, 1000)
	running := must(consumer.Consume(func(msg jetstream.Msg) { heard <- msg; msg.Ack() }, jetstream.PullMaxMessages(50)))
	for n := range 600 {
		if n == 500 {
			for late := 500; late < 600; late++ {
				must(js.Publish(ctx, "consume.x", []byte(number(late))))
			}
		}
		select {
		case msg := <-heard:
			expect(string(msg.Data()) == number(n), "%s at %d", msg.Data(), n)
		case <-time.After(wait):
			panic(fmt.Sprintf("quiet after %d", n))
		}
	}
	running.Stop()
	messages := must(must(stream.CreateConsumer(ctx, jetstream.ConsumerConfig{FilterSubject: "consume.1"})).Messages())
	for range 167 {
		must(messages.Next())
	}
	messages.Stop()
}

func streamPush() {
	ctx, js, _, done := streamed("push", 10)
	defer done()
	heard := make(chan jetstream.Msg, 100)
	consumer := must(js.CreatePushConsumer(ctx, "push", jetstream.ConsumerConfig{
		Durable: "d", DeliverSubject: "push_to", AckPolicy: jetstream.AckExplicitPolicy, IdleHeartbeat: time.Second, FlowControl: true,
	}))
	running := must(consumer.Consume(func(msg jetstream.Msg) { heard <- msg; msg.Ack() }))
	defer running.Stop()
	must(js.Publish(ctx, "push.x", []byte("10")))
	for n := range 11 {
		msg := <-heard
		expect(string(msg.Data()) == number(n), "%s at %d", msg.Data(), n)
	}
}

func streamRedelivery() {
	ctx, _, stream, done := streamed("again", 2)
	defer done()
	consumer := must(stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 300 * time.Millisecond, MaxDeliver: 4,
	}))
	one, two := must(consumer.Next()), must(consumer.Next())
	one.NakWithDelay(50 * time.Millisecond)
	two.TermWithReason("no use")
	for want := uint64(2); want < 4; want++ {
		again := must(consumer.Next())
		meta := must(again.Metadata())
		expect(meta.NumDelivered == want && meta.Sequence.Stream == 1, "%v", meta)
		if want == 3 {
			expect(again.DoubleAck(ctx) == nil, "ack")
		}
	}
	expect(must(consumer.Info(ctx)).NumAckPending == 0, "pending")
}

func streamOrdered() {
	ctx, _, stream, done := streamed("ordered", 500)
	defer done()
	consumer := must(stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{}))
	messages := must(consumer.Messages())
	for n := range 500 {
		msg := must(messages.Next())
		expect(string(msg.Data()) == number(n), "%s at %d", msg.Data(), n)
	}
	messages.Stop()
	filtered := must(stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{"ordered.0", "ordered.2"}}))
	batch := must(filtered.Fetch(10))
	count := 0
	for range batch.Messages() {
		count++
	}
	expect(count == 10, "%d filtered", count)
}

func streamOrderedRestart() {
	ctx, js, stream, done := streamed("restarted", 10)
	defer done()
	consumer := must(stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{}))
	messages := must(consumer.Messages(jetstream.PullHeartbeat(500*time.Millisecond), jetstream.PullExpiry(2*time.Second)))
	defer messages.Stop()
	for n := range 20 {
		if n == 10 {
			fmt.Println("restart streams")
			for late := 10; late < 20; late++ {
				for {
					once, cancel := context.WithTimeout(ctx, time.Second)
					_, err := js.Publish(once, "restarted.x", []byte(number(late)), jetstream.WithMsgID(number(late)))
					cancel()
					if err == nil {
						break
					}
					expect(ctx.Err() == nil, "%v", err)
				}
			}
		}
		msg := must(messages.Next())
		expect(string(msg.Data()) == number(n), "%s at %d", msg.Data(), n)
	}
}

func streamKV() {
	ctx, js, _, done := streamed("unused", 0)
	defer done()
	bucket := must(js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "kv", History: 3, LimitMarkerTTL: time.Minute}))
	defer js.DeleteKeyValue(ctx, "kv")
	expect(must(bucket.PutString(ctx, "a", "1")) == 1, "first revision")
	expect(must(bucket.Update(ctx, "a", []byte("2"), 1)) == 2, "second revision")
	_, err := bucket.Update(ctx, "a", []byte("x"), 1)
	expect(errors.Is(err, jetstream.ErrKeyExists), "%v", err)
	must(bucket.Create(ctx, "b", []byte("new"), jetstream.KeyTTL(time.Hour)))
	_, err = bucket.Create(ctx, "b", []byte("new"))
	expect(errors.Is(err, jetstream.ErrKeyExists), "%v", err)
	expect(string(must(bucket.GetRevision(ctx, "a", 1)).Value()) == "1", "revision")
	must(bucket.PutString(ctx, "a", "3"))
	must(bucket.PutString(ctx, "a", "4"))
	history := must(bucket.History(ctx, "a"))
	expect(len(history) == 3 && string(history[0].Value()) == "2", "%v", history)
	expect(bucket.Delete(ctx, "b") == nil, "delete")
	_, err = bucket.Get(ctx, "b")
	expect(errors.Is(err, jetstream.ErrKeyNotFound), "%v", err)
	must(bucket.Create(ctx, "b", []byte("again")))
	expect(bucket.Purge(ctx, "a", jetstream.PurgeTTL(time.Hour)) == nil, "purge")
	keys := must(bucket.Keys(ctx))
	expect(slices.Equal(keys, []string{"b"}), "%v", keys)
	must(bucket.PutString(ctx, "c.d", "5"))
	lister := must(bucket.ListKeysFiltered(ctx, "c.*", "b"))
	count := 0
	for range lister.Keys() {
		count++
	}
	expect(count == 2, "%d keys", count)
	expect(bucket.PurgeDeletes(ctx, jetstream.DeleteMarkersOlderThan(-1)) == nil, "purge deletes")
	status := must(bucket.Status(ctx))
	expect(status.Bucket() == "kv" && status.History() == 3 && status.Values() >= 2, "%d", status.Values())
}

func streamKVWatch() {
	ctx, js, _, done := streamed("unused", 0)
	defer done()
	bucket := must(js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "watched", History: 5}))
	defer js.DeleteKeyValue(ctx, "watched")
	for _, key := range []string{"a", "b.c", "b.d", "a"} {
		must(bucket.PutString(ctx, key, key))
	}
	see := func(watcher jetstream.KeyWatcher, wanted ...string) {
		for _, want := range wanted {
			select {
			case entry := <-watcher.Updates():
				got := ""
				if entry != nil {
					got = entry.Key()
				}
				expect(got == want, "%q instead of %q", got, want)
			case <-time.After(wait):
				panic("no " + want)
			}
		}
	}
	some := must(bucket.Watch(ctx, "b.*"))
	see(some, "b.c", "b.d", "")
	all := must(bucket.WatchAll(ctx, jetstream.IncludeHistory()))
	see(all, "a", "b.c", "b.d", "a", "")
	updates := must(bucket.WatchAll(ctx, jetstream.UpdatesOnly(), jetstream.IgnoreDeletes()))
	resumed := must(bucket.WatchAll(ctx, jetstream.ResumeFromRevision(3)))
	see(resumed, "b.d", "a", "")
	bucket.Delete(ctx, "b.c")
	must(bucket.PutString(ctx, "a", "last"))
	see(some, "b.c")
	see(all, "b.c", "a")
	see(updates, "a")
	see(resumed, "b.c", "a")
}

func streamObjects() {
	ctx, js, _, done := streamed("unused", 0)
	defer done()
	store := must(js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: "objects"}))
	defer js.DeleteObjectStore(ctx, "objects")
	data := make([]byte, 700_000)
	rand.Read(data)
	info := must(store.PutBytes(ctx, "file", data))
	expect(info.Chunks == 6, "%v", info)
	expect(bytes.Equal(must(store.GetBytes(ctx, "file")), data), "other bytes")
	must(store.AddLink(ctx, "link", info))
	expect(len(must(store.GetBytes(ctx, "link"))) == 700_000, "link")
	watcher := must(store.Watch(ctx))
	for _, want := range []string{"file", "link", ""} {
		entry := <-watcher.Updates()
		expect((entry == nil && want == "") || entry.Name == want, "%v", entry)
	}
	expect(store.Delete(ctx, "file") == nil, "delete")
	expect((<-watcher.Updates()).Deleted, "not told")
	expect(len(must(store.List(ctx))) == 1, "list")
	expect(store.Seal(ctx) == nil, "seal")
	_, err := store.PutString(ctx, "more", "x")
	expect(err != nil, "a sealed store took more")
	expect(must(store.Status(ctx)).Sealed(), "not sealed")
}

func streamPriority() {
	ctx, js, stream, done := streamed("priority", 0)
	defer done()
	consumer := must(stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, PriorityPolicy: jetstream.PriorityPolicyOverflow, PriorityGroups: []string{"g"},
	}))
	for range 3 {
		must(js.Publish(ctx, "priority.x", nil))
	}
	few := must(consumer.Fetch(1, jetstream.FetchPriorityGroup("g"), jetstream.FetchMinPending(100), jetstream.FetchMaxWait(100*time.Millisecond)))
	expect(<-few.Messages() == nil, "below its limit")
	enough := must(consumer.Fetch(1, jetstream.FetchPriorityGroup("g"), jetstream.FetchMinPending(3)))
	expect(<-enough.Messages() != nil, "%v", enough.Error())
	must(js.PauseConsumer(ctx, "priority", "worker", time.Now().Add(time.Hour)))
	expect(must(consumer.Info(ctx)).Paused, "not paused")
	expect(!must(js.ResumeConsumer(ctx, "priority", "worker")).Paused, "not resumed")
	must(consumer.Next(jetstream.FetchPriorityGroup("g")))
}

func streams() {
	run("fetch", streamFetch)
	run("consume", streamConsume)
	run("push", streamPush)
	run("redelivery", streamRedelivery)
	run("ordered", streamOrdered)
	run("ordered_restart", streamOrderedRestart)
	run("kv", streamKV)
	run("kv_watch", streamKVWatch)
	run("objects", streamObjects)
	run("priority", streamPriority)
}
