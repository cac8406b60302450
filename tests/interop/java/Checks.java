// Ordinary features through jnats. Prints "ok NAME" or "FAIL NAME: why" for each check.
import io.nats.client.*;
import io.nats.client.api.ServerInfo;
import io.nats.client.impl.Headers;
import io.nats.client.impl.NatsMessage;
import java.io.FileInputStream;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

public class Checks {
    static final Duration WAIT = Duration.ofSeconds(5);

    interface Check { void run() throws Exception; }

    static String var(String name) { return System.getenv("INTEROP_" + name); }

    static void expect(boolean held, Object why) {
        if (!held) throw new IllegalStateException(String.valueOf(why));
    }

    static Options.Builder options(String url) {
        return new Options.Builder().server(url).errorListener(new ErrorListener() {});
    }

    static Connection dial() throws Exception { return Nats.connect(options(var("PLAIN")).build()); }

    static Options.Builder locked(String password) {
        return options(var("LOCKED")).userInfo("app", password);
    }

    static String text(Message message) {
        expect(message != null, "no message in time");
        return new String(message.getData());
    }

    static void connectInfo() throws Exception {
        try (Connection nc = Nats.connect(options(var("PLAIN")).connectionName("interop").build())) {
            ServerInfo info = nc.getServerInfo();
            expect(info.getMaxPayload() == 1048576 && info.isHeadersSupported(), info);
            expect(info.getClientId() > 0 && info.getServerId().startsWith("N"), info);
        }
    }

    static void publishSubscribe() throws Exception {
        try (Connection nc = dial()) {
            Subscription sub = nc.subscribe("pubsub.one");
            nc.publish("pubsub.one", "back", "hello".getBytes());
            Message got = sub.nextMessage(WAIT);
            expect(text(got).equals("hello") && got.getReplyTo().equals("back"), got);
        }
    }

    static void wildcards() throws Exception {
        try (Connection nc = dial()) {
            Subscription star = nc.subscribe("wild.*.x"), tail = nc.subscribe("wild.>");
            nc.publish("wild.a.x", "1".getBytes());
            nc.publish("wild.a.b.x", "2".getBytes());
            expect(text(tail.nextMessage(WAIT)).equals("1"), "tail 1");
            expect(text(tail.nextMessage(WAIT)).equals("2"), "tail 2");
            expect(text(star.nextMessage(WAIT)).equals("1"), "star");
            expect(star.getPendingMessageCount() == 0, "star has more");
        }
    }

    static void queueGroup() throws Exception {
        try (Connection nc = dial()) {
            AtomicInteger[] counts = {new AtomicInteger(), new AtomicInteger(), new AtomicInteger()};
            CountDownLatch done = new CountDownLatch(300);
            for (AtomicInteger count : counts) {
                nc.createDispatcher(m -> { count.incrementAndGet(); done.countDown(); })
                    .subscribe("jobs", "workers");
            }
            for (int n = 0; n < 300; n++) nc.publish("jobs", new byte[1]);
            expect(done.await(5, TimeUnit.SECONDS), "not all came");
            nc.flush(WAIT);
            int total = 0;
            for (AtomicInteger count : counts) {
                expect(count.get() > 0, "a member had none");
                total += count.get();
            }
            expect(total == 300, total);
        }
    }

    static void requestReply() throws Exception {
        try (Connection nc = dial()) {
            nc.createDispatcher(m ->
                nc.publish(m.getReplyTo(), new String(m.getData()).toUpperCase().getBytes()))
                .subscribe("service");
            for (int n = 0; n < 50; n++) {
                String answer = text(nc.request("service", ("q" + n).getBytes(), WAIT));
                expect(answer.equals("Q" + n), answer);
            }
        }
    }

    static void headers() throws Exception {
        try (Connection nc = dial()) {
            Subscription sub = nc.subscribe("headed");
            Headers head = new Headers().add("Key", "one", "two");
            nc.publish(NatsMessage.builder().subject("headed").headers(head).data("body").build());
            Message got = sub.nextMessage(WAIT);
            expect(text(got).equals("body"), got);
            expect(got.getHeaders().get("Key").equals(List.of("one", "two")), got.getHeaders());
        }
    }

    static void noResponders() throws Exception {
        try (Connection nc = Nats.connect(options(var("PLAIN")).reportNoResponders().build())) {
            nc.request("nobody.here", new byte[1]).get(5, TimeUnit.SECONDS);
            expect(false, "an answer from nobody");
        } catch (ExecutionException error) {
            expect(error.getCause() instanceof JetStreamStatusException, error);
        }
    }

    static void unsubscribeMax() throws Exception {
        try (Connection nc = dial()) {
            Subscription sub = nc.subscribe("limited");
            sub.unsubscribe(3);
            for (int n = 0; n < 5; n++) nc.publish("limited", new byte[1]);
            nc.flush(WAIT);
            for (int n = 0; n < 3; n++) text(sub.nextMessage(WAIT));
            expect(!sub.isActive(), "still active");
        }
    }

    static void drain() throws Exception {
        Connection nc = dial();
        AtomicInteger got = new AtomicInteger();
        nc.createDispatcher(m -> got.incrementAndGet()).subscribe("drained");
        for (int n = 0; n < 100; n++) nc.publish("drained", new byte[1]);
        expect(nc.drain(WAIT).get(5, TimeUnit.SECONDS), "not drained");
        expect(got.get() == 100, got);
    }

    static void largeMessage() throws Exception {
        try (Connection nc = dial()) {
            Subscription sub = nc.subscribe("large");
            byte[] data = new byte[1048576];
            new Random(1).nextBytes(data);
            nc.publish("large", data);
            expect(Arrays.equals(sub.nextMessage(WAIT).getData(), data), "other bytes");
        }
    }

    static void maxPayload() throws Exception {
        try (Connection nc = Nats.connect(locked("secret").build())) {
            expect(nc.getMaxPayload() == 1024, nc.getMaxPayload());
            nc.publish("app.x", new byte[1025]);
            expect(false, "more than the limit was taken");
        } catch (IllegalArgumentException refused) {
            // The client itself holds to the limit of INFO.
        }
    }

    static void flushRtt() throws Exception {
        try (Connection nc = dial()) {
            for (int n = 0; n < 10; n++) {
                nc.publish("flushed", new byte[1]);
                nc.flush(WAIT);
            }
            expect(nc.RTT().toNanos() > 0, "rtt");
        }
    }

    static void authRefused() throws Exception {
        try {
            Nats.connect(locked("wrong").noReconnect().build()).close();
        } catch (AuthenticationException refused) {
            return;
        }
        expect(false, "a wrong password was taken");
    }

    static void permissions() throws Exception {
        BlockingQueue<String> errors = new LinkedBlockingQueue<>();
        ErrorListener note = new ErrorListener() {
            @Override public void errorOccurred(Connection nc, String error) { errors.add(error); }
        };
        try (Connection nc = Nats.connect(locked("secret").errorListener(note).build())) {
            nc.publish("other.x", new byte[1]);
            String error = errors.poll(5, TimeUnit.SECONDS);
            expect(error != null && error.toLowerCase().contains("permissions violation for publish"), error);
            Subscription sub = nc.subscribe("app.x");
            nc.publish("app.x", "still here".getBytes());
            expect(text(sub.nextMessage(WAIT)).equals("still here"), "payload");
        }
    }

    static SSLContext trusting(String path) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null);
        try (FileInputStream in = new FileInputStream(path)) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(in));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }

    static void tls() throws Exception {
        try (Connection nc = Nats.connect(options(var("TLS")).sslContext(trusting(var("CA"))).build())) {
            Subscription sub = nc.subscribe("secret");
            nc.publish("secret", new byte[100_000]);
            expect(sub.nextMessage(WAIT).getData().length == 100_000, "size");
        }
    }

    static void reconnect() throws Exception {
        CountDownLatch again = new CountDownLatch(1);
        Options options = options(var("RESTARTED")).reconnectWait(Duration.ofMillis(50)).maxReconnects(-1)
            .connectionListener((nc, type) -> {
                if (type == ConnectionListener.Events.RESUBSCRIBED) again.countDown();
            }).build();
        try (Connection nc = Nats.connect(options)) {
            Subscription sub = nc.subscribe("after.restart");
            nc.flush(WAIT);
            System.out.println("restart");
            expect(again.await(30, TimeUnit.SECONDS), "not reconnected");
            nc.publish("after.restart", "again".getBytes());
            expect(text(sub.nextMessage(WAIT)).equals("again"), "payload");
        }
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
        run("connect_info", Checks::connectInfo);
        run("publish_subscribe", Checks::publishSubscribe);
        run("wildcards", Checks::wildcards);
        run("queue_group", Checks::queueGroup);
        run("request_reply", Checks::requestReply);
        run("headers", Checks::headers);
        run("no_responders", Checks::noResponders);
        run("unsubscribe_max", Checks::unsubscribeMax);
        run("drain", Checks::drain);
        run("large_message", Checks::largeMessage);
        run("max_payload", Checks::maxPayload);
        run("flush_rtt", Checks::flushRtt);
        run("auth_refused", Checks::authRefused);
        run("permissions", Checks::permissions);
        run("tls", Checks::tls);
        run("reconnect", Checks::reconnect);
        System.exit(0);
    }
}
