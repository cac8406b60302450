//! Ordinary features through async-nats. Prints "ok NAME" or "FAIL NAME: why" for each check.
mod streams;

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, HeaderMap, Message, Subscriber};
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::time::timeout;

type Checked = Result<(), Box<dyn std::error::Error + Send + Sync>>;
const WAIT: Duration = Duration::from_secs(5);

fn var(name: &str) -> String {
    std::env::var(format!("INTEROP_{name}")).expect(name)
}

async fn dial() -> Result<Client, async_nats::ConnectError> {
    async_nats::connect(var("PLAIN")).await
}

fn locked(password: &str) -> ConnectOptions {
    ConnectOptions::with_user_and_password("app".into(), password.into())
}

fn expect(held: bool, why: impl std::fmt::Debug) -> Checked {
    if held { Ok(()) } else { Err(format!("{why:?}").into()) }
}

async fn next(sub: &mut Subscriber) -> Result<Message, Box<dyn std::error::Error + Send + Sync>> {
    timeout(WAIT, sub.next()).await?.ok_or_else(|| "subscription ended".into())
}

async fn connect_info() -> Checked {
    let nc = ConnectOptions::new().name("interop").connect(var("PLAIN")).await?;
    let info = nc.server_info();
    expect(info.max_payload == 1048576 && info.headers && info.client_id > 0, &info)
}

async fn publish_subscribe() -> Checked {
    let nc = dial().await?;
    let mut sub = nc.subscribe("pubsub.one").await?;
    nc.publish_with_reply("pubsub.one", "back", "hello".into()).await?;
    let msg = next(&mut sub).await?;
    expect(msg.subject.as_str() == "pubsub.one" && &msg.payload[..] == b"hello", &msg)?;
    expect(msg.reply.as_deref() == Some("back"), &msg.reply)
}

async fn wildcards() -> Checked {
    let nc = dial().await?;
    let mut star = nc.subscribe("wild.*.x").await?;
    let mut tail = nc.subscribe("wild.>").await?;
    nc.publish("wild.a.x", "1".into()).await?;
    nc.publish("wild.a.b.x", "2".into()).await?;
    for want in ["1", "2"] {
        expect(next(&mut tail).await?.payload == want, want)?;
    }
    expect(next(&mut star).await?.payload == "1", "star")
}

async fn queue_group() -> Checked {
    let nc = dial().await?;
    let (told, mut heard) = mpsc::unbounded_channel();
    let counts: Arc<[AtomicUsize; 3]> = Arc::default();
    for index in 0..3 {
        let mut sub = nc.queue_subscribe("jobs", "workers".into()).await?;
        let (told, counts) = (told.clone(), counts.clone());
        tokio::spawn(async move {
            while sub.next().await.is_some() {
                counts[index].fetch_add(1, Ordering::SeqCst);
                let _ = told.send(());
            }
        });
    }
    for _ in 0..300 {
        nc.publish("jobs", "x".into()).await?;
    }
    for _ in 0..300 {
        timeout(WAIT, heard.recv()).await?;
    }
    nc.flush().await?;
    let counts: Vec<usize> = counts.iter().map(|c| c.load(Ordering::SeqCst)).collect();
    expect(counts.iter().sum::<usize>() == 300 && counts.iter().all(|&c| c > 0), &counts)
}

async fn request_reply() -> Checked {
    let nc = dial().await?;
    let mut service = nc.subscribe("service").await?;
    let answering = nc.clone();
    tokio::spawn(async move {
        while let Some(msg) = service.next().await {
            let upper = String::from_utf8_lossy(&msg.payload).to_uppercase();
            let _ = answering.publish(msg.reply.unwrap(), upper.into()).await;
        }
    });
    for n in 0..50 {
        let answer = nc.request("service", format!("q{n}").into()).await?;
        expect(answer.payload == format!("Q{n}"), &answer)?;
    }
    Ok(())
}

async fn headers() -> Checked {
    let nc = dial().await?;
    let mut sub = nc.subscribe("headed").await?;
    let mut head = HeaderMap::new();
    head.append("Key", "one");
    head.append("Key", "two");
    nc.publish_with_headers("headed", head.clone(), "body".into()).await?;
    let msg = next(&mut sub).await?;
    expect(msg.headers == Some(head) && msg.payload == "body", &msg)
}

async fn no_responders() -> Checked {
    let nc = dial().await?;
    let error = nc.request("nobody.here", "?".into()).await.expect_err("an answer from nobody");
    expect(error.kind() == async_nats::RequestErrorKind::NoResponders, &error)
}

async fn unsubscribe_max() -> Checked {
    let nc = dial().await?;
    let mut sub = nc.subscribe("limited").await?;
    sub.unsubscribe_after(3).await?;
    for _ in 0..5 {
        nc.publish("limited", "x".into()).await?;
    }
    let mut got = 0;
    while timeout(WAIT, sub.next()).await?.is_some() {
        got += 1;
    }
    expect(got == 3, got)
}

async fn drain() -> Checked {
    let nc = dial().await?;
    let mut sub = nc.subscribe("drained").await?;
    for _ in 0..100 {
        nc.publish("drained", "x".into()).await?;
    }
    nc.flush().await?;
    nc.drain().await?;
    let mut got = 0;
    while timeout(WAIT, sub.next()).await?.is_some() {
        got += 1;
    }
    expect(got == 100, got)
}

async fn large_message() -> Checked {
    let nc = dial().await?;
    let mut sub = nc.subscribe("large").await?;
    let data: Vec<u8> = (0..1048576u32).map(|n| (n * 31 >> 3) as u8).collect();
    nc.publish("large", data.clone().into()).await?;
    expect(next(&mut sub).await?.payload == data, "other bytes")
}

async fn max_payload() -> Checked {
    let nc = locked("secret").connect(var("LOCKED")).await?;
    let refused = nc.publish("app.x", vec![0u8; 1025].into()).await;
    let error = refused.expect_err("more than the limit was taken");
    expect(error.kind() == async_nats::client::PublishErrorKind::MaxPayloadExceeded, &error)
}

async fn flush_rtt() -> Checked {
    let nc = dial().await?;
    for _ in 0..10 {
        nc.publish("flushed", "x".into()).await?;
        timeout(WAIT, nc.flush()).await??;
    }
    Ok(())
}

async fn auth_refused() -> Checked {
    let refused = locked("wrong").connect(var("LOCKED")).await;
    let error = refused.expect_err("a wrong password was taken");
    expect(error.kind() == async_nats::ConnectErrorKind::AuthorizationViolation, &error)
}

/// Connects with a channel that gets the events of the connection.
async fn with_events(
    options: ConnectOptions,
    url: String,
) -> Result<(Client, mpsc::UnboundedReceiver<Event>), async_nats::ConnectError> {
    let (told, heard) = mpsc::unbounded_channel();
    let options = options.event_callback(move |event| {
        let told = told.clone();
        async move {
            let _ = told.send(event);
        }
    });
    Ok((options.connect(url).await?, heard))
}

async fn permissions() -> Checked {
    let (nc, mut events) = with_events(locked("secret"), var("LOCKED")).await?;
    nc.publish("other.x", "x".into()).await?;
    loop {
        let event = timeout(WAIT, events.recv()).await?.ok_or("no event")?;
        if let Event::ServerError(error) = event {
            let text = format!("{error}").to_lowercase();
            expect(text.contains("permissions violation for publish to \"other.x\""), text)?;
            break;
        }
    }
    let mut sub = nc.subscribe("app.x").await?;
    nc.publish("app.x", "still here".into()).await?;
    expect(next(&mut sub).await?.payload == "still here", "payload")
}

async fn tls() -> Checked {
    let options = ConnectOptions::new().add_root_certificates(var("CA").into());
    let nc = options.connect(var("TLS")).await?;
    let mut sub = nc.subscribe("secret").await?;
    nc.publish("secret", vec![1u8; 100_000].into()).await?;
    expect(next(&mut sub).await?.payload.len() == 100_000, "size")
}

async fn reconnect() -> Checked {
    let options = ConnectOptions::new().reconnect_delay_callback(|_| Duration::from_millis(50));
    let (nc, mut events) = with_events(options, var("RESTARTED")).await?;
    let mut sub = nc.subscribe("after.restart").await?;
    nc.flush().await?;
    println!("restart");
    let mut lost = false;
    loop {
        match timeout(WAIT, events.recv()).await?.ok_or("no event")? {
            Event::Disconnected => lost = true,
            Event::Connected if lost => break,
            _ => {}
        }
    }
    nc.publish("after.restart", "again".into()).await?;
    expect(next(&mut sub).await?.payload == "again", "payload")
}

async fn run(name: &str, check: impl Future<Output = Checked> + Send + 'static) {
    match tokio::spawn(timeout(6 * WAIT, check)).await {
        Ok(Ok(Ok(()))) => println!("ok {name}"),
        Ok(Ok(Err(error))) => println!("FAIL {name}: {error}"),
        Ok(Err(_)) => println!("FAIL {name}: too slow"),
        Err(panic) => println!("FAIL {name}: {panic}"),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    if std::env::args().nth(1).as_deref() == Some("streams") {
        return streams::main().await;
    }
    run("connect_info", connect_info()).await;
    run("publish_subscribe", publish_subscribe()).await;
    run("wildcards", wildcards()).await;
    run("queue_group", queue_group()).await;
    run("request_reply", request_reply()).await;
    run("headers", headers()).await;
    run("no_responders", no_responders()).await;
    run("unsubscribe_max", unsubscribe_max()).await;
    run("drain", drain()).await;
    run("large_message", large_message()).await;
    run("max_payload", max_payload()).await;
    run("flush_rtt", flush_rtt()).await;
    run("auth_refused", auth_refused()).await;
    run("permissions", permissions()).await;
    run("tls", tls()).await;
    run("reconnect", reconnect()).await;
}
