//! Consumers, key-value buckets and object stores through async-nats.
use std::time::Duration;

use async_nats::jetstream::{self, consumer, kv, object_store, stream, AckKind, Context};
use futures_util::{StreamExt, TryStreamExt};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::{expect, run, var, Checked, WAIT};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A connection and a stream of its own with `count` messages.
async fn streamed(name: &str, count: usize) -> Result<(Context, stream::Stream), Failure> {
    let options = async_nats::ConnectOptions::new().reconnect_delay_callback(|_| Duration::from_millis(50));
    let js = jetstream::new(options.connect(var("STREAMS")).await?);
    let config = stream::Config { name: name.into(), subjects: vec![format!("{name}.>")], ..Default::default() };
    let stream = js.create_stream(config).await?;
    for n in 0..count {
        js.publish(format!("{name}.{}", n % 3), n.to_string().into()).await?.await?;
    }
    Ok((js, stream))
}

fn durable() -> consumer::pull::Config {
    consumer::pull::Config { durable_name: Some("worker".into()), ..Default::default() }
}

async fn fetch() -> Checked {
    let (js, stream) = streamed("fetch", 25).await?;
    let mut consumer = stream.create_consumer(durable()).await?;
    let mut count = 0;
    while count < 25 {
        let mut batch = consumer.fetch().max_messages(10).messages().await?;
        while let Some(msg) = batch.next().await {
            let msg = msg?;
            expect(msg.payload == count.to_string(), count)?;
            msg.double_ack().await?;
            count += 1;
        }
    }
    let info = consumer.info().await?;
    expect(info.num_pending == 0 && info.num_ack_pending == 0 && info.ack_floor.stream_sequence == 25, info)?;
    js.delete_stream("fetch").await?;
    Ok(())
}

async fn consume() -> Checked {
    let (js, stream) = streamed("consume", 500).await?;
    let consumer = stream.create_consumer(durable()).await?;
    let mut messages = consumer.stream().max_messages_per_batch(50).messages().await?;
    for n in 0..600 {
        if n == 500 {
            for late in 500..600 {
                js.publish("consume.x", late.to_string().into()).await?.await?;
            }
        }
        let msg = timeout(WAIT, messages.next()).await?.ok_or("ended")??;
        expect(msg.payload == n.to_string(), n)?;
        msg.ack().await?;
    }
    js.delete_stream("consume").await?;
    Ok(())
}

async fn push() -> Checked {
    let (js, stream) = streamed("push", 10).await?;
    let config = consumer::push::Config {
        durable_name: Some("d".into()),
        deliver_subject: "push_to".into(),
        idle_heartbeat: Duration::from_secs(1),
        flow_control: true,
        ..Default::default()
    };
    let mut messages = stream.create_consumer(config).await?.messages().await?;
    js.publish("push.x", "10".into()).await?.await?;
    for n in 0..11 {
        let msg = timeout(WAIT, messages.next()).await?.ok_or("ended")??;
        expect(msg.payload == n.to_string(), n)?;
        msg.ack().await?;
    }
    js.delete_stream("push").await?;
    Ok(())
}

async fn redelivery() -> Checked {
    let (js, stream) = streamed("again", 2).await?;
    let config = consumer::pull::Config { ack_wait: Duration::from_millis(300), max_deliver: 4, ..durable() };
    let mut consumer = stream.create_consumer(config).await?;
    let mut messages = consumer.stream().max_messages_per_batch(1).messages().await?;
    let one = timeout(WAIT, messages.next()).await?.ok_or("ended")??;
    let two = timeout(WAIT, messages.next()).await?.ok_or("ended")??;
    one.ack_with(AckKind::Nak(Some(Duration::from_millis(50)))).await?;
    two.ack_with(AckKind::Term).await?;
    for want in 2..4 {
        let again = timeout(WAIT, messages.next()).await?.ok_or("ended")??;
        let delivered = again.info()?.delivered;
        expect(delivered == want && again.info()?.stream_sequence == 1, delivered)?;
        if want == 3 {
            again.double_ack().await?;
        }
    }
    expect(consumer.info().await?.num_ack_pending == 0, "pending")?;
    js.delete_stream("again").await?;
    Ok(())
}

async fn ordered() -> Checked {
    let (js, stream) = streamed("ordered", 500).await?;
    let pull = consumer::pull::OrderedConfig::default();
    let mut messages = stream.create_consumer(pull).await?.messages().await?;
    for n in 0..500 {
        let msg = timeout(WAIT, messages.next()).await?.ok_or("ended")??;
        expect(msg.payload == n.to_string(), n)?;
    }
    let push = consumer::push::OrderedConfig { deliver_subject: "ordered_to".into(), ..Default::default() };
    let mut messages = stream.create_consumer(push).await?.messages().await?;
    for n in 0..500 {
        let msg = timeout(WAIT, messages.next()).await?.ok_or("ended")??;
        expect(msg.payload == n.to_string(), n)?;
    }
    js.delete_stream("ordered").await?;
    Ok(())
}

async fn ordered_restart() -> Checked {
    let (js, stream) = streamed("restarted", 10).await?;
    let push = consumer::push::OrderedConfig { deliver_subject: "restarted_to".into(), ..Default::default() };
    let mut messages = stream.create_consumer(push).await?.messages().await?;
    for n in 0..20 {
        if n == 10 {
            println!("restart streams");
            for late in 10..20 {
                let mut headers = async_nats::HeaderMap::new();
                headers.insert("Nats-Msg-Id", late.to_string());
                loop {
                    let sent = js.publish_with_headers("restarted.x", headers.clone(), late.to_string().into()).await?;
                    if let Ok(Ok(_)) = timeout(Duration::from_secs(1), async { sent.await }).await {
                        break;
                    }
                }
            }
        }
        // A heartbeat that was missed is told as an error, then the client goes on.
        let msg = loop {
            if let Ok(msg) = timeout(4 * WAIT, messages.next()).await?.ok_or("ended")? {
                break msg;
            }
        };
        expect(msg.payload == n.to_string(), n)?;
    }
    js.delete_stream("restarted").await?;
    Ok(())
}

async fn kv() -> Checked {
    let (js, _) = streamed("unused", 0).await?;
    let config = kv::Config { bucket: "kv".into(), history: 3, ..Default::default() };
    let bucket = js.create_key_value(config).await?;
    expect(bucket.put("a", "1".into()).await? == 1, "first revision")?;
    expect(bucket.update("a", "2".into(), 1).await? == 2, "second revision")?;
    expect(bucket.update("a", "x".into(), 1).await.is_err(), "an old revision was taken")?;
    bucket.create("b", "new".into()).await?;
    expect(bucket.create("b", "new".into()).await.is_err(), "created twice")?;
    expect(bucket.entry_for_revision("a", 1).await?.ok_or("none")?.value == "1", "revision")?;
    bucket.put("a", "3".into()).await?;
    bucket.put("a", "4".into()).await?;
    let history: Vec<kv::Entry> = bucket.history("a").await?.try_collect().await?;
    expect(history.len() == 3 && history[0].value == "2", &history)?;
    bucket.delete("b").await?;
    expect(bucket.get("b").await?.is_none(), "a deleted key is there")?;
    bucket.create("b", "again".into()).await?;
    bucket.purge("a").await?;
    let keys: Vec<String> = bucket.keys().await?.try_collect().await?;
    expect(keys == ["b"], &keys)?;
    expect(bucket.status().await?.history() == 3, "history")?;
    js.delete_key_value("kv").await?;
    js.delete_stream("unused").await?;
    Ok(())
}

async fn kv_watch() -> Checked {
    let (js, _) = streamed("unused", 0).await?;
    let config = kv::Config { bucket: "watched".into(), history: 5, ..Default::default() };
    let bucket = js.create_key_value(config).await?;
    for key in ["a", "b.c", "b.d", "a"] {
        bucket.put(key, key.into()).await?;
    }
    let mut all = bucket.watch_with_history(">").await?;
    let mut updates = bucket.watch("b.*").await?;
    bucket.delete("b.c").await?;
    bucket.put("a", "last".into()).await?;
    for want in ["b.c", "b.d", "a", "b.c", "a"] {
        let entry = timeout(WAIT, all.next()).await?.ok_or("ended")??;
        expect(entry.key == want, &entry)?;
    }
    let entry = timeout(WAIT, updates.next()).await?.ok_or("ended")??;
    expect(entry.key == "b.c" && entry.operation == kv::Operation::Delete, &entry)?;
    js.delete_key_value("watched").await?;
    js.delete_stream("unused").await?;
    Ok(())
}

async fn objects() -> Checked {
    let (js, _) = streamed("unused", 0).await?;
    let config = object_store::Config { bucket: "objects".into(), ..Default::default() };
    let store = js.create_object_store(config).await?;
    let data: Vec<u8> = (0..700_000u32).map(|n| (n % 251) as u8).collect();
    let info = store.put("file", &mut data.as_slice()).await?;
    expect(info.chunks == 6, &info)?;
    let mut found = Vec::new();
    store.get("file").await?.read_to_end(&mut found).await?;
    expect(found == data, "other bytes")?;
    store.add_link("link", &info).await?;
    store.delete("file").await?;
    let left: Vec<_> = store.list().await?.try_collect().await?;
    expect(left.len() == 1, &left)?;
    js.delete_object_store("objects").await?;
    js.delete_stream("unused").await?;
    Ok(())
}

pub async fn main() {
    run("fetch", fetch()).await;
    run("consume", consume()).await;
    run("push", push()).await;
    run("redelivery", redelivery()).await;
    run("ordered", ordered()).await;
    run("ordered_restart", ordered_restart()).await;
    run("kv", kv()).await;
    run("kv_watch", kv_watch()).await;
    run("objects", objects()).await;
}
