//! Record batches that clients send: decoded one by one, as fast as a statement takes them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow_flight::FlightData;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use arrow_flight::sql::server::PeekableFlightDataStream;
use futures::future::{Either, select};
use futures::{FutureExt, StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tonic::Status;
use weft::{BatchReader, BatchesOnce};

use super::error::OrStatus;

/// Batches that wait to be read by a statement, at most.
const BATCHES_MAX: usize = 2;

/// The schema and the batches of a client.
pub(super) struct Upload {
    schema: SchemaRef,
    decoder: FlightDataDecoder,
}

impl Upload {
    /// Reads what a client sends up to its schema.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no schema.
    pub(super) async fn new(stream: PeekableFlightDataStream) -> Result<Upload, Status> {
        let checked = stream.map(|data| check(data?)).map_err(FlightError::from);
        let decoder = FlightDataDecoder::new(checked);
        let mut upload = Upload { schema: Arc::new(arrow::datatypes::Schema::empty()), decoder };
        loop {
            match upload.next_payload().await? {
                Some(DecodedPayload::Schema(schema)) => {
                    upload.schema = schema;
                    return Ok(upload);
                }
                Some(DecodedPayload::None) => {}
                Some(DecodedPayload::RecordBatch(_)) | None => {
                    return Err(Status::invalid_argument("the rows came without their schema"));
                }
            }
        }
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    async fn next_payload(&mut self) -> Result<Option<DecodedPayload>, Status> {
        // The decoder believes what the client says of offsets and lengths.
        let decoded = AssertUnwindSafe(self.decoder.next()).catch_unwind().await;
        let decoded = decoded
            .map_err(|_| Status::invalid_argument("a message is no well-formed record batch"))?;
        match decoded {
            Some(Ok(data)) => Ok(Some(data.payload)),
            Some(Err(FlightError::Tonic(status))) => Err(*status),
            Some(Err(error)) => Err(Status::invalid_argument(error.to_string())),
            None => Ok(None),
        }
    }

    /// The next batch.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>, Status> {
        loop {
            match self.next_payload().await? {
                Some(DecodedPayload::RecordBatch(batch)) => return Ok(Some(batch)),
                Some(DecodedPayload::None) => {}
                Some(DecodedPayload::Schema(_)) => {
                    return Err(Status::invalid_argument("a second schema among the rows"));
                }
                None => return Ok(None),
            }
        }
    }

    /// Has a statement read the batches. The statement fails if the client breaks off.
    pub(super) async fn read_by<T, F: Future<Output = Result<T, Status>>>(
        mut self,
        work: impl FnOnce(BatchesOnce) -> F,
    ) -> Result<T, Status> {
        let (sender, parts) = mpsc::channel(BATCHES_MAX);
        let reader: BatchReader = Box::new(Incoming { parts, is_over: false });
        let source = BatchesOnce::new(Arc::clone(&self.schema), reader);
        let sending = async {
            while let Some(batch) = self.next().await? {
                if sender.send(Some(batch)).await.is_err() {
                    // The statement takes no more; what became of it comes from itself.
                    return Ok(());
                }
            }
            drop(sender.send(None).await);
            Ok(())
        };
        let (sending, work) = (Box::pin(sending), Box::pin(work(source)));
        match select(sending, work).await {
            Either::Left((Ok(()), work)) => work.await,
            // Dropping the work cancels the statement.
            Either::Left((Err(status), _)) => Err(status),
            Either::Right((done, _)) => done,
        }
    }
}

/// Refuses compressed batches: how much memory they take would be what the client says.
fn check(data: FlightData) -> Result<FlightData, Status> {
    if data.data_header.is_empty() {
        return Ok(data);
    }
    let message = arrow::ipc::root_as_message(&data.data_header)
        .map_err(|error| Status::invalid_argument(format!("no message of Arrow: {error}")))?;
    let dictionary = message.header_as_dictionary_batch().and_then(|batch| batch.data());
    let batch = message.header_as_record_batch().or(dictionary);
    match batch.is_some_and(|batch| batch.compression().is_some()) {
        true => Err(Status::unimplemented(
            "compressed record batches are not supported: send them uncompressed",
        )),
        false => Ok(data),
    }
}

/// Batches that come through a channel; `None` is their end.
struct Incoming {
    parts: mpsc::Receiver<Option<RecordBatch>>,
    is_over: bool,
}

impl Iterator for Incoming {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let part = self.parts.blocking_recv();
        self.is_over = !matches!(part, Some(Some(_)));
        match part {
            Some(batch) => batch.map(Ok),
            None => {
                let message = "the client broke off before the end of its rows";
                Some(Err(ArrowError::ExternalError(message.into())))
            }
        }
    }
}

/// Reads all batches of a client, which are the parameters of a statement.
///
/// # Errors
/// `ResourceExhausted` if they take more than `bytes_max`.
pub(super) async fn collect(
    upload: &mut Upload,
    bytes_max: usize,
) -> Result<Vec<RecordBatch>, Status> {
    let (mut batches, mut bytes) = (Vec::new(), 0_usize);
    while let Some(batch) = upload.next().await? {
        bytes = bytes.saturating_add(batch.get_array_memory_size());
        if bytes > bytes_max {
            return Err(Status::resource_exhausted(format!(
                "the rows of parameters take more than {bytes_max} bytes: bind fewer at a time"
            )));
        }
        batches.push(batch);
    }
    // Values that cannot be parameters are told where they are bound.
    for batch in &batches {
        weft::BoundRows::new(batch).or_status()?;
    }
    Ok(batches)
}
