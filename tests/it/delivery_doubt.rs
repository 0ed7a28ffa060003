//! Mail that may have been sent, and mail that was sent but cannot be settled: what happens to it, and what an operator
//! sees.

mod batches;
mod parked;
mod signs;
mod unsettled;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::post::Post;
use crate::receiver::{Reaction, Receiver, Request, status};

/// A key in the form that SendGrid and Resend use.
const API_KEY: &str = "transport.api_key = SG.0123456789abcdef";

const FROM: &str = "transport.from = noreply@example.com";

/// Number of requests by subject.
type Arrivals = Arc<Mutex<HashMap<String, usize>>>;

/// A receiver that reads each request, then closes the connection, does not answer, or accepts, depending on the
/// subject.
fn ambiguous() -> (Receiver, Arrivals) {
    let arrivals = Arrivals::default();
    let seen = Arc::clone(&arrivals);
    let receiver = Receiver::start(move |request| {
        let subject = subject(request);
        *seen.lock().unwrap().entry(subject.clone()).or_default() += 1;
        match subject.as_str() {
            "reset" => Reaction::Close,
            "silent" => Reaction::Hang,
            _ => status(202),
        }
    });
    (receiver, arrivals)
}

/// Returns the subject of a mail, which the bodies of webhooks and of SendGrid contain as a JSON string.
fn subject(request: &Request) -> String {
    let rest = request.body.split("\"subject\":\"").nth(1).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

fn arrived(arrivals: &Arrivals, subject: &str) -> usize {
    arrivals.lock().unwrap().get(subject).copied().unwrap_or(0)
}

/// Starts a worker that delivers by the API of this provider, with [`API_KEY`].
fn by(provider: &str, receiver: &Receiver, settings: &[&str]) -> Post {
    let provider = format!("transport.provider = {provider}");
    let mut all = vec![provider.as_str(), FROM, API_KEY];
    // Long enough for a quick response on a busy machine.
    all.push("transport.timeout = 20 s");
    all.extend(settings);
    let endpoint = format!("http://{}", receiver.address);
    Post::start_at(&endpoint, &all)
}

fn send(post: &mut Post, subjects: &[&str]) {
    for subject in subjects {
        post.client
            .execute(
                "SELECT mailroom_send('a@example.com', $1, 'Text')",
                &[subject],
            )
            .unwrap();
    }
}

/// Returns state, failed attempts and last error of a mail.
fn told(post: &mut Post, subject: &str) -> (String, i32, String) {
    let row = post
        .client
        .query_one(
            "SELECT state::text, failed_attempts, coalesce(last_error, '') FROM outbox WHERE subject = $1",
            &[&subject],
        )
        .unwrap();
    (row.get(0), row.get(1), row.get(2))
}
