//! Finds out how an Organization Data API behaves where its contract is silent, with GETs alone.
//!
//! An answer is given only if the responses leave no other. For each question there are a few hypotheses, each predicts what a response holds,
//! and one of them has to be left. If the data of the organization does not decide, entries arrive in between, or a request fails, the answer is
//! "cannot tell", with the reason. So a failure of the service can take an answer away, but not change it:
//!
//! - a refusal or an empty page counts if it comes three times in a row,
//! - what follows from several responses counts if the top of the listing was the same before and after,
//! - what follows from a cursor counts if the cursor leads to the right entries in another request afterwards.

mod ask;
mod audit;
mod cursors;
mod filters;
mod questions;
mod sample;
mod shape;
mod tickets;
mod watch;

use std::time::Duration;

use orgdata_api::Client;
use serde::Serialize;

pub use ask::MAX_REQUESTS;
use ask::{Asker, Found, Known};
pub use questions::Question;

/// What to ask about.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The audit log listing.
    pub audit: bool,
    /// The ticket listing.
    pub tickets: bool,
    /// Whether to look for late entries and expired cursors: four times, with this wait before each.
    pub watch: Option<Duration>,
}

/// The answers, without data of the organization.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// The number of requests that were sent.
    pub requests: u32,
    /// The answers, in the order of the questions.
    pub answers: Vec<Answer>,
    /// Whether a listing could not be read at all.
    #[serde(skip)]
    pub is_unreadable: bool,
}

/// A question and its answer.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// What was asked.
    pub question: &'static str,
    /// What is known; `None` if the responses do not tell.
    pub answer: Option<String>,
    /// How it is known, or why it is not.
    pub evidence: String,
    /// What the exporter does about it.
    pub exporter: &'static str,
    /// What to do, if the exporter would work badly.
    pub advice: Option<&'static str>,
}

/// Asks everything, with a client made by [`Client::for_probe`].
pub async fn probe(client: Client, options: Options) -> Report {
    let (mut asker, mut report) = (Asker::new(client), Report::default());
    let few = |why: Known<()>| {
        why.err()
            .unwrap_or_else(|| "the items are too few or too similar".to_owned())
    };
    if options.audit {
        let why = few(audit::ask(&mut asker, &mut report, options.watch).await);
        let is_meant =
            |it: &Question| !it.is_of_tickets() && (options.watch.is_some() || !it.is_watched());
        report.is_unreadable |= report.fill(&why, is_meant);
    }
    if options.tickets {
        let why = few(tickets::ask(&mut asker, &mut report).await);
        report.is_unreadable |= report.fill(&why, Question::is_of_tickets);
    }
    let place = |answer: &Answer| Question::all().position(|it| it.name == answer.question);
    report.answers.sort_by_key(place);
    report.requests = asker.requests;
    report
}

// === impl Report ===

impl Report {
    fn add(&mut self, name: &str, known: Known<Found>) {
        let Some(question) = Question::all().find(|question| question.name == name) else {
            debug_assert!(false, "{name} is not in the list");
            return;
        };
        let (answer, evidence) = match known {
            Ok(Found { answer, evidence }) => (Some(answer), evidence),
            Err(why) => (None, why),
        };
        let is_bad = answer.as_deref().is_some_and(|it| !question.is_good(it));
        self.answers.push(Answer {
            question: question.name,
            answer,
            evidence,
            exporter: question.exporter,
            advice: is_bad.then_some(question.advice),
        });
    }

    /// Answers those of some questions that could not be asked. Returns whether none could.
    fn fill(&mut self, why: &str, is_meant: impl Fn(&Question) -> bool) -> bool {
        let is_answered =
            |it: &Question| self.answers.iter().any(|answer| answer.question == it.name);
        let (done, rest): (Vec<_>, Vec<_>) =
            Question::all().filter(is_meant).partition(is_answered);
        for question in rest {
            self.add(question.name, Err(why.to_owned()));
        }
        done.is_empty()
    }
}
