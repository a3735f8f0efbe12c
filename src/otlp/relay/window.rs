//! The oldest records of the outbox in memory, encoded once, and the requests that are made of them.

use std::collections::VecDeque;

use bytes::Bytes;
use jiff::Timestamp;

use super::size::RequestSize;
use crate::ledger::{OutboxPosition, OutboxRecord};
use crate::otlp::envelope::Envelope;
use crate::otlp::record::Mapper;

/// Records on their way, oldest first.
#[derive(Debug, Default)]
pub(super) struct Window {
    items: VecDeque<Item>,
}

/// A record on its way.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) record: OutboxRecord,
    encoded: Vec<u8>,
    /// It got through, or became a dead letter, ahead of its turn.
    done: bool,
}

/// The records of one request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Batch {
    /// So many of the oldest.
    Oldest(usize),
    /// One that is not the oldest.
    Witness(usize),
}

// === impl Window ===

impl Window {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Takes over what was read from the outbox; what is done already stays so.
    pub(super) fn replace(&mut self, records: impl Iterator<Item = OutboxRecord>, mapper: &Mapper) {
        let done: Vec<OutboxPosition> = self
            .items
            .iter()
            .filter(|item| item.done)
            .map(|item| item.record.position)
            .collect();
        let items = records.map(|record| Item {
            encoded: mapper.encode(&record),
            done: done.contains(&record.position),
            record,
        });
        self.items = items.collect();
    }

    /// As many of the oldest records as fit, at least one.
    pub(super) fn oldest(&self, records: usize, size: &RequestSize, envelope: &Envelope) -> Batch {
        let mut sum = 0;
        let fitting = self
            .items
            .iter()
            .take(records.min(size.records()))
            .take_while(|item| {
                sum += if item.done {
                    0
                } else {
                    Envelope::record_len(item.encoded.len())
                };
                envelope.request_len(sum) <= size.bytes()
            });
        Batch::Oldest(fitting.count().max(1))
    }

    /// A record other than the oldest, picked at random: one that is always the same may be a bad one itself.
    pub(super) fn witness(&self) -> Option<Batch> {
        let others: Vec<usize> = (1..self.items.len())
            .filter(|index| !self.items[*index].done)
            .collect();
        fastrand::choice(&others).map(|index| Batch::Witness(*index))
    }

    pub(super) fn request(&self, batch: Batch, envelope: &Envelope) -> Bytes {
        envelope.request(self.batch(batch).map(|item| item.encoded.as_slice()))
    }

    /// The records of a request, without those that are done.
    pub(super) fn batch(&self, batch: Batch) -> impl Iterator<Item = &Item> + Clone {
        let range = match batch {
            Batch::Oldest(records) => 0..records,
            Batch::Witness(index) => index..index + 1,
        };
        self.items.range(range).filter(|item| !item.done)
    }

    /// How many records of each page a request holds. The records of a page arrived together.
    pub(super) fn arrivals(&self, batch: Batch) -> Vec<(Timestamp, u64)> {
        let mut pages: Vec<(Timestamp, u64)> = Vec::new();
        for item in self.batch(batch) {
            match pages.last_mut() {
                Some((page, records)) if *page == item.record.arrived_at => *records += 1,
                _ => pages.push((item.record.arrived_at, 1)),
            }
        }
        pages
    }

    /// A record is done ahead of its turn.
    pub(super) fn done(&mut self, index: usize) {
        self.items[index].done = true;
    }

    /// How many of the oldest are done already.
    pub(super) fn done_first(&self) -> usize {
        self.items.iter().take_while(|item| item.done).count()
    }

    /// The oldest records leave.
    pub(super) fn leave(&mut self, records: usize) -> impl Iterator<Item = OutboxRecord> {
        self.items.drain(..records).map(|item| item.record)
    }
}
