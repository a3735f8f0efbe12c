//! The questions, and what the exporter does with their answers.

/// A question and what its answer means for the exporter.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Its name.
    pub name: &'static str,
    /// What the exporter does about the answer.
    pub exporter: &'static str,
    /// The answers with which the exporter works well; if empty, all.
    good: &'static str,
    /// What to do about the others.
    pub(crate) advice: &'static str,
}

/// A question per line: its name, what the exporter does, the good answers, and what to do about others.
const QUESTIONS: &str = "
ids | knows an entry by its id | stable | tell the API's operators: without a stable id, an entry is counted again when it changes or is listed again
order within a page | turns pages around that list the oldest entry first
order of the listing | relies on none: the id decides what is new
end of the listing | requests the page before again to confirm it
hasMore | does not use it
hasPrevious | does not use it
largest page | goes on below a page that is shorter than its limit
limit of 0 | never sends it
limit of 1001 | never sends it
before | skips the entry of the cursor if it is returned again | inclusive, exclusive | tell the API's operators: only the newest page can be read, so set --audit.poll-interval so short that fewer than 1000 entries arrive in between
made-up cursor | tries the cursor of the page before if one is refused
before and after together | never sends both
after with more than a page | does not use after
form of cursors | sends cursors as they are
cursor after the watch | tries the cursor of the page before if one has expired
late entries | finds them with re-reads (--audit.reread-window)
filter by one type | drops other entries itself | the filter applies | do not set --audit.activity-types: the exporter would request more, or less, than it should read
filter by types, repeated | sends several types with []
filter by types, repeated with [] | drops other entries itself | either type | set one --audit.activity-types at most: the exporter would request more, or less, than it should read
filter by one deal | drops other entries itself | the filter applies | do not set --audit.deal-ids: the exporter would request more, or less, than it should read
filter by type and deal | drops other entries itself | both filters apply | set only one --audit filter: the exporter would request more, or less, than it should read
unknown type | sends filters as they are
unknown deal | sends filters as they are
unknown e-mail address | sends filters as they are, and cannot check the result
deviations from the contract | sends entries as they are in log records
null fields | leaves their attributes out
form of createdAt | reads all common forms; a time without a zone is UTC
equal times in a row | does not order by time
clock | measures the re-read window with the API's clock
compression | accepts gzip
rate-limit headers | obeys Retry-After alone
ETag | does not use it
tickets: order | relies on none
tickets: totalCount | publishes a scan as not consistent if it does not match
tickets: largest page | goes on behind a page that is shorter than its limit
tickets: offset | reads page by page | honoured | set --tickets.enabled=false if there are more tickets than on one page, and tell the API's operators: the others cannot be read
tickets: offset beyond the end | ends at an empty page
tickets: deviations from the contract | counts a ticket by the fields that it has
tickets: null fields | counts a ticket by the fields that it has
tickets: types | uses them as the label ticket_type
tickets: states | counts those in --tickets.open-states as open
tickets: priorities | ranks them by --tickets.priorities
tickets: without deals | shows them with the priority none
tickets: form of createdAt | computes ages from it
tickets: form of closedAt | computes the time to close from it
tickets: form of targetDueDate | finds overdue tickets with it
";

// === impl Question ===

impl Question {
    /// Returns all questions.
    pub fn all() -> impl Iterator<Item = Self> {
        QUESTIONS.trim().lines().map(|line| {
            let mut parts = line.split(" | ");
            let mut part = || parts.next().unwrap_or_default();
            Self {
                name: part(),
                exporter: part(),
                good: part(),
                advice: part(),
            }
        })
    }

    pub(crate) fn is_good(&self, answer: &str) -> bool {
        self.good.is_empty() || self.good.split(", ").any(|good| good == answer)
    }

    pub(crate) fn is_of_tickets(&self) -> bool {
        self.name.starts_with("tickets: ")
    }

    /// Returns whether the answer takes a while.
    pub(crate) fn is_watched(&self) -> bool {
        ["cursor after the watch", "late entries"].contains(&self.name)
    }
}
