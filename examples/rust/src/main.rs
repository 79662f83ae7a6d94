//! A service as anybody would write it: reads orders where it runs, writes an invoice for each to the headquarters.

use futures::TryStreamExt;
use pulsar::{
    consumer::{ConsumerOptions, InitialPosition},
    producer::Message,
    Consumer, Error, Pulsar, SubType, TokioExecutor,
};
use std::{env, time::Duration};
use tokio::time::{sleep, timeout};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut orders: Consumer<Vec<u8>, _> = client("GEOEMU_SERVICE_URL")
        .await?
        .consumer()
        .with_topic("orders")
        .with_subscription("billing")
        .with_subscription_type(SubType::Exclusive)
        .with_options(ConsumerOptions::default().with_initial_position(InitialPosition::Earliest))
        .build()
        .await?;
    let headquarters = client("GEOEMU_SERVICE_URL_EU_CENTRAL").await?;
    let mut invoices = headquarters.producer().with_topic("invoices").build().await?;
    while let Some(order) = orders.try_next().await? {
        let invoice = Message {
            payload: [b"invoice of ", order.payload.data.as_slice()].concat(),
            partition_key: order.metadata().partition_key.clone(),
            ..Default::default()
        };
        // Stored is what the region has confirmed, and nothing else.
        loop {
            match timeout(Duration::from_secs(1), invoices.send_non_blocking(invoice.clone())).await {
                Ok(Ok(receipt)) => match timeout(Duration::from_secs(1), receipt).await {
                    Ok(Ok(_)) => break,
                    other => eprintln!("once more: {other:?}"),
                },
                Ok(Err(problem)) => eprintln!("once more: {problem}"),
                Err(_) => eprintln!("once more: no connection"),
            }
            sleep(Duration::from_millis(100)).await;
        }
        orders.ack(&order).await?;
    }
    Ok(())
}

async fn client(variable: &str) -> Result<Pulsar<TokioExecutor>, Error> {
    Pulsar::builder(env::var(variable).expect(variable), TokioExecutor).build().await
}
