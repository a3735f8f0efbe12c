//! The frame of a page for people: what an exporter is doing, in its own sections.
//!
//! The style sheet knows these classes: `grid` (sections side by side; `wide` for lists), `head` (a title and a badge),
//! `badge` (`good`, `bad`, `wait`), `number` (in a table), `muted`, `error` and `summary`. The frame runs no scripts, and `maud` escapes every value.

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use maud::{DOCTYPE, Markup, html};

/// The path of the style sheet, which [`serve`](crate::serve) answers.
pub(crate) const STYLE_PATH: &str = "/-/style.css";

/// What is around the sections of a page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame<'a> {
    /// The name of the exporter.
    pub name: &'a str,
    /// Its version, and whatever else stands beside the name.
    pub version: &'a str,
    /// What the exporter is doing, in one word, which is in the title of the browser's tab.
    pub state: &'a str,
    /// How often the page reloads itself, in seconds; 0 means never.
    pub refresh: u32,
    /// Text and address of the links below the sections.
    pub links: &'a [(&'a str, &'a str)],
    /// The last line.
    pub footer: &'a str,
}

// === impl Frame ===

impl Frame<'_> {
    /// Returns the page with these sections.
    pub fn page(&self, sections: &Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    @if self.refresh > 0 { meta http-equiv="refresh" content=(self.refresh); }
                    title { (self.state) " \u{b7} " (self.name) }
                    link rel="icon" href="data:,";
                    link rel="stylesheet" href=(STYLE_PATH);
                }
                body {
                    header {
                        h1 { (self.name) }
                        span.muted { (self.version) }
                    }
                    main { (sections) }
                    footer {
                        nav { @for (text, address) in self.links { a href=(address) { (text) } } }
                        small { (self.footer) }
                    }
                }
            }
        }
    }
}

pub(crate) async fn style() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/css")], include_str!("landing.css"))
}
