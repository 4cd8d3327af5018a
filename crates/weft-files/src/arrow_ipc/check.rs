//! What a message says of its body, against the body: places of buffers, numbers of rows, lengths after decompression.

use arrow::ipc::{
    BodyCompressionMethod, CompressionType, FieldNode, Message, MessageHeader, RecordBatch,
};

/// Rows of a batch, at most.
const ROWS_MAX: i64 = 1 << 31;

/// The longest that an element of a list, or a value within others, may make a column.
const NODE_ROWS_MAX: i64 = 1 << 40;

/// Bytes before a compressed buffer, which say its length without compression.
const PREFIX_BYTES: usize = 8;

/// Of a compressed buffer: it is none.
const NOT_COMPRESSED: i64 = -1;

/// Checks a record batch or a dictionary. With `bytes_max`, the buffers may not have more bytes when they are decompressed.
///
/// # Errors
/// What is wrong, in words.
pub(super) fn check(message: Message<'_>, body: &[u8], bytes_max: u64) -> Result<(), String> {
    let batch = match message.header_type() {
        MessageHeader::RecordBatch => message.header_as_record_batch(),
        MessageHeader::DictionaryBatch => {
            message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data())
        }
        other => return Err(format!("it has a message of an unknown kind ({other:?})")),
    };
    let Some(batch) = batch else { return Err("a message lacks its content".to_owned()) };
    if !(0..=ROWS_MAX).contains(&batch.length()) {
        return Err(format!("a batch claims to have {} rows", batch.length()));
    }
    for node in batch.nodes().into_iter().flatten() {
        check_node(node)?;
    }
    check_buffers(batch, body, bytes_max)
}

fn check_node(node: &FieldNode) -> Result<(), String> {
    let (length, nulls) = (node.length(), node.null_count());
    match (0..=NODE_ROWS_MAX).contains(&length) && (0..=length).contains(&nulls) {
        true => Ok(()),
        false => Err(format!("a column claims to have {length} values, {nulls} of them NULL")),
    }
}

fn check_buffers(batch: RecordBatch<'_>, body: &[u8], bytes_max: u64) -> Result<(), String> {
    let is_compressed = match batch.compression() {
        None => false,
        Some(found) => {
            let is_known =
                matches!(found.codec(), CompressionType::LZ4_FRAME | CompressionType::ZSTD);
            if found.method() != BodyCompressionMethod::BUFFER || !is_known {
                return Err("it is compressed in an unknown way".to_owned());
            }
            true
        }
    };
    let mut total = 0_u64;
    for buffer in batch.buffers().into_iter().flatten() {
        let place = |value: i64| usize::try_from(value).ok();
        let bytes =
            place(buffer.offset()).zip(place(buffer.length())).and_then(|(start, length)| {
                let end = start.checked_add(length)?;
                body.get(start..end)
            });
        let Some(bytes) = bytes else {
            let (offset, length) = (buffer.offset(), buffer.length());
            return Err(format!(
                "a buffer of {length} bytes at byte {offset} lies beyond its message"
            ));
        };
        if !is_compressed || bytes.is_empty() {
            continue;
        }
        let Some(prefix) = bytes.first_chunk::<PREFIX_BYTES>() else {
            return Err("a compressed buffer does not say its length".to_owned());
        };
        let length = i64::from_le_bytes(*prefix);
        if length == NOT_COMPRESSED {
            continue;
        }
        let length = u64::try_from(length)
            .map_err(|_| format!("a compressed buffer claims to have {length} bytes"))?;
        total = total.saturating_add(length);
        if total > bytes_max {
            return Err(format!(
                "a message has more than {} MiB when it is decompressed",
                bytes_max >> 20
            ));
        }
    }
    Ok(())
}
