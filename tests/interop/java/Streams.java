// Consumers, key-value buckets and object stores through jnats. Prints "ok NAME" or "FAIL NAME: why"
// for each check.
import io.nats.client.*;
import io.nats.client.api.*;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;

public class Streams {
    static final Duration WAIT = Duration.ofSeconds(5);

    interface Check { void run() throws Exception; }

    interface Body { void run(Connection nc, JetStream js, JetStreamManagement jsm) throws Exception; }

    static void expect(boolean held, Object why) {
        if (!held) throw new IllegalStateException(String.valueOf(why));
    }

    static String text(Message message) {
        expect(message != null, "no message in time");
        return new String(message.getData());
    }

    // A connection and a stream of its own with `count` messages.
    static void streamed(String name, int count, Body body) throws Exception {
        Options options = new Options.Builder().server(System.getenv("INTEROP_STREAMS"))
            .reconnectWait(Duration.ofMillis(50)).maxReconnects(-1).errorListener(new ErrorListener() {}).build();
        try (Connection nc = Nats.connect(options)) {
            JetStreamManagement jsm = nc.jetStreamManagement();
            jsm.addStream(StreamConfiguration.builder().name(name).subjects(name + ".>")
                .storageType(StorageType.File).build());
            JetStream js = nc.jetStream();
            for (int n = 0; n < count; n++) js.publish(name + "." + n % 3, String.valueOf(n).getBytes());
            try {
                body.run(nc, js, jsm);
            } finally {
                jsm.deleteStream(name);
            }
        }
    }

    static ConsumerConfiguration.Builder worker() {
        return ConsumerConfiguration.builder().durable("worker").ackPolicy(AckPolicy.Explicit);
    }

    static ConsumerContext made(Connection nc, String stream, ConsumerConfiguration config) throws Exception {
        return nc.getStreamContext(stream).createOrUpdateConsumer(config);
    }

    static void fetch() throws Exception {
        streamed("fetch", 25, (nc, js, jsm) -> {
            ConsumerContext consumer = made(nc, "fetch", worker().build());
            int count = 0;
            while (count < 25) {
                try (FetchConsumer batch = consumer.fetchMessages(10)) {
                    for (Message msg; count < 25 && (msg = batch.nextMessage()) != null; count++) {
                        expect(text(msg).equals(String.valueOf(count)), count);
                        msg.ackSync(WAIT);
                    }
                }
            }
            ConsumerInfo info = consumer.getConsumerInfo();
            expect(info.getNumPending() == 0 && info.getNumAckPending() == 0, info);
        });
    }

    static void consume() throws Exception {
        streamed("consume", 500, (nc, js, jsm) -> {
            BlockingQueue<Message> heard = new LinkedBlockingQueue<>();
            ConsumerContext consumer = made(nc, "consume", worker().build());
            ConsumeOptions options = ConsumeOptions.builder().batchSize(50).build();
            try (MessageConsumer running = consumer.consume(options, msg -> { msg.ack(); heard.add(msg); })) {
                for (int n = 0; n < 600; n++) {
                    if (n == 500)
                        for (int late = 500; late < 600; late++) js.publish("consume.x", String.valueOf(late).getBytes());
                    expect(text(heard.poll(5, TimeUnit.SECONDS)).equals(String.valueOf(n)), n);
                }
                running.stop();
            }
        });
    }

    static void push() throws Exception {
        streamed("push", 10, (nc, js, jsm) -> {
            ConsumerConfiguration config = ConsumerConfiguration.builder().durable("d").deliverSubject("push_to")
                .flowControl(Duration.ofSeconds(1)).build();
            JetStreamSubscription sub = js.subscribe("push.>", PushSubscribeOptions.builder().configuration(config).build());
            js.publish("push.x", "10".getBytes());
            for (int n = 0; n < 11; n++) {
                Message msg = sub.nextMessage(WAIT);
                expect(text(msg).equals(String.valueOf(n)), n);
                msg.ack();
            }
        });
    }

    static void redelivery() throws Exception {
        streamed("again", 2, (nc, js, jsm) -> {
            ConsumerContext consumer = made(nc, "again", worker().ackWait(Duration.ofMillis(300)).maxDeliver(4).build());
            Message one = consumer.next(WAIT), two = consumer.next(WAIT);
            one.nakWithDelay(Duration.ofMillis(50));
            two.term();
            for (int want = 2; want < 4; want++) {
                Message again = consumer.next(WAIT);
                expect(text(again).equals("0") && again.metaData().deliveredCount() == want, again.metaData());
                if (want == 3) again.ackSync(WAIT);
            }
            expect(consumer.getConsumerInfo().getNumAckPending() == 0, "pending");
        });
    }

    static void ordered() throws Exception {
        streamed("ordered", 500, (nc, js, jsm) -> {
            OrderedConsumerContext consumer = nc.getStreamContext("ordered").createOrderedConsumer(new OrderedConsumerConfiguration());
            try (IterableConsumer messages = consumer.iterate()) {
                for (int n = 0; n < 500; n++) expect(text(messages.nextMessage(WAIT)).equals(String.valueOf(n)), n);
            }
            JetStreamSubscription sub = js.subscribe("ordered.>", PushSubscribeOptions.builder().ordered(true).build());
            for (int n = 0; n < 500; n++) expect(text(sub.nextMessage(WAIT)).equals(String.valueOf(n)), n);
        });
    }

    static void orderedRestart() throws Exception {
        streamed("restarted", 10, (nc, js, jsm) -> {
            ConsumerConfiguration config = ConsumerConfiguration.builder().flowControl(500).build();
            JetStreamSubscription sub = js.subscribe("restarted.>",
                PushSubscribeOptions.builder().ordered(true).configuration(config).build());
            for (int n = 0; n < 20; n++) {
                if (n == 10) {
                    System.out.println("restart streams");
                    for (int late = 10; late < 20; late++) publishSurely(js, late);
                }
                expect(text(sub.nextMessage(Duration.ofSeconds(20))).equals(String.valueOf(n)), n);
            }
        });
    }

    static void publishSurely(JetStream js, int number) throws Exception {
        PublishOptions once = PublishOptions.builder().messageId(String.valueOf(number)).build();
        for (int tries = 0; tries < 100; tries++) {
            try {
                js.publish("restarted.x", String.valueOf(number).getBytes(), once);
                return;
            } catch (Exception problem) {
                Thread.sleep(50);
            }
        }
        throw new IllegalStateException("not published " + number);
    }

    static void kv() throws Exception {
        streamed("unused", 0, (nc, js, jsm) -> {
            KeyValueManagement manager = nc.keyValueManagement();
            manager.create(KeyValueConfiguration.builder().name("kv").maxHistoryPerKey(3).build());
            KeyValue bucket = nc.keyValue("kv");
            expect(bucket.put("a", "1") == 1, "first revision");
            expect(bucket.update("a", "2".getBytes(), 1) == 2, "second revision");
            refused(() -> bucket.update("a", "x".getBytes(), 1));
            bucket.create("b", "new".getBytes());
            refused(() -> bucket.create("b", "new".getBytes()));
            expect(bucket.get("a", 1).getValueAsString().equals("1"), "revision");
            bucket.put("a", "3");
            bucket.put("a", "4");
            List<KeyValueEntry> history = bucket.history("a");
            expect(history.size() == 3 && history.get(0).getValueAsString().equals("2"), history);
            bucket.delete("b");
            expect(bucket.get("b") == null, "a deleted key is there");
            bucket.create("b", "again".getBytes());
            bucket.purge("a");
            expect(bucket.keys().equals(List.of("b")), bucket.keys());
            bucket.purgeDeletes();
            expect(bucket.getStatus().getMaxHistoryPerKey() == 3, bucket.getStatus());
            manager.delete("kv");
        });
    }

    static void refused(Check check) throws Exception {
        try {
            check.run();
        } catch (JetStreamApiException expected) {
            return;
        }
        throw new IllegalStateException("it was taken");
    }

    static void kvWatch() throws Exception {
        streamed("unused", 0, (nc, js, jsm) -> {
            KeyValueManagement manager = nc.keyValueManagement();
            manager.create(KeyValueConfiguration.builder().name("watched").maxHistoryPerKey(5).build());
            KeyValue bucket = nc.keyValue("watched");
            for (String key : List.of("a", "b.c", "b.d", "a")) bucket.put(key, key);
            BlockingQueue<String> heard = new LinkedBlockingQueue<>();
            KeyValueWatcher watcher = new KeyValueWatcher() {
                public void watch(KeyValueEntry entry) { heard.add(entry.getKey()); }
                public void endOfData() { heard.add("end"); }
            };
            bucket.watch("b.*", watcher);
            for (String want : List.of("b.c", "b.d", "end")) expect(want.equals(heard.poll(5, TimeUnit.SECONDS)), want);
            bucket.put("a", "unheard");
            bucket.delete("b.c");
            expect("b.c".equals(heard.poll(5, TimeUnit.SECONDS)), "no update");
            bucket.watchAll(watcher, KeyValueWatchOption.INCLUDE_HISTORY);
            for (String want : List.of("a", "b.c", "b.d", "a", "a", "b.c", "end"))
                expect(want.equals(heard.poll(5, TimeUnit.SECONDS)), want);
            manager.delete("watched");
        });
    }

    static void objects() throws Exception {
        streamed("unused", 0, (nc, js, jsm) -> {
            nc.objectStoreManagement().create(ObjectStoreConfiguration.builder("objects").build());
            ObjectStore store = nc.objectStore("objects");
            byte[] data = new byte[700_000];
            new Random(1).nextBytes(data);
            ObjectInfo info = store.put("file", new ByteArrayInputStream(data));
            expect(info.getChunks() == 6, info);
            ByteArrayOutputStream found = new ByteArrayOutputStream();
            store.get("file", found);
            expect(Arrays.equals(found.toByteArray(), data), "other bytes");
            store.addLink("link", info);
            store.delete("file");
            expect(store.getList().size() == 1, store.getList());
            expect(store.seal().isSealed(), "not sealed");
            nc.objectStoreManagement().delete("objects");
        });
    }

    static void run(String name, Check check) {
        try {
            check.run();
            System.out.println("ok " + name);
        } catch (Throwable problem) {
            System.out.println("FAIL " + name + ": " + String.valueOf(problem).replace('\n', ' '));
        }
    }

    public static void main(String[] arguments) {
        run("fetch", Streams::fetch);
        run("consume", Streams::consume);
        run("push", Streams::push);
        run("redelivery", Streams::redelivery);
        run("ordered", Streams::ordered);
        run("ordered_restart", Streams::orderedRestart);
        run("kv", Streams::kv);
        run("kv_watch", Streams::kvWatch);
        run("objects", Streams::objects);
        System.exit(0);
    }
}
