//! An open page follows the database, and outlives it.
// needs: browser

use std::path::PathBuf;

use serde_json::{Value, json};

use super::scene::Scene;
use super::texts;
use crate::browser::{Browser, Seen};
use crate::cluster::{Stop, eventually};

/// Does the steps. At each `{"meanwhile": n}` the browser waits until the test has done that.
fn beside(
    browser: &Browser,
    scene: &mut Scene,
    steps: &Value,
    mut meanwhile: impl FnMut(u64, &mut Scene),
) -> Seen {
    let scratch = scene.cluster.scratch();
    let file = |name: &str, number: u64| -> PathBuf { scratch.join(format!("{name}-{number}")) };
    let mut all = Vec::new();
    let mut numbers = Vec::new();
    for step in steps.as_array().unwrap() {
        match step["meanwhile"].as_u64() {
            Some(number) => {
                numbers.push(number);
                all.push(json!({"tell": file("reached", number)}));
                all.push(json!({"wait_for": file("done", number)}));
            }
            None => all.push(step.clone()),
        }
    }
    let all = Value::from(all);
    std::thread::scope(|scope| {
        let seen = scope.spawn(|| browser.run(&all));
        for number in numbers {
            eventually("the browser to get there", || {
                (seen.is_finished() || file("reached", number).exists()).then_some(())
            });
            meanwhile(number, scene);
            std::fs::write(file("done", number), "").unwrap();
        }
        seen.join().unwrap()
    })
}

const PLACE: &str = "[document.activeElement.getAttribute('href'), scrollY].join(' at ')";

#[test]
fn a_page_follows_the_database_and_keeps_focus_and_scroll() {
    let mut scene = Scene::start();
    let browser = scene.browser_of("live", "maria");
    let steps = json!([
        {"visit": "/messages", "width": 1280, "height": 420},
        {"press": "j"}, {"press": "j"}, {"press": "j"},
        {"evaluate": "scrollTo(0, 150), null"},
        {"evaluate": PLACE},
        {"meanwhile": 1},
        {"wait": "#rows a:has-text('Fresh news')"},
        {"evaluate": PLACE},
        {"press": "r"},
        {"read": "#live-text"},
        {"meanwhile": 2},
        {"pause": 6000},
        {"evaluate": "document.querySelectorAll('#rows a').length"},
        {"press": "r"},
        {"wait": "#rows a:has-text('While it was paused')"},
        {"read": "#live-text"},
    ]);
    let mut before = scene.lines("SELECT count(*)::text FROM outbox").remove(0);
    let seen = beside(&browser, &mut scene, &steps, |number, scene| {
        let subject = ["Fresh news", "While it was paused"][usize::from(number == 2)];
        let sql = format!(
            "INSERT INTO outbox (transport, kind, recipients, subject, body_text)
             VALUES ('smtp', 'news', '{{nora@example.com}}', '{subject}', 'News')"
        );
        scene.client.batch_execute(&sql).unwrap();
    });
    seen.assert_sound();
    let texts = texts(&seen);
    assert!(
        texts[0].ends_with(" at 150") && texts[0].starts_with("/app/messages/"),
        "{texts:#?}"
    );
    assert_eq!(texts[0], texts[1]);
    assert_eq!(texts[2], "Updates are paused");
    before = (before.parse::<i64>().unwrap() + 1).to_string();
    assert_eq!(texts[3], before);
    assert_eq!(texts[4], "Updates every 5 s");
}

#[test]
fn pages_recover_when_the_database_comes_back() {
    let mut scene = Scene::start();
    let browser = scene.browser_of("recovery", "ops");
    let steps = json!([
        {"visit": "/"},
        {"meanwhile": 1},
        {"wait": "#live[data-state=stale]"},
        {"read": "#live-text"},
        {"read": "#problems"},
        {"meanwhile": 2},
        {"wait": "#live[data-state=live]"},
        {"read": "#live-text"},
        // What is opened while it is away.
        {"meanwhile": 3},
        {"visit": "/messages", "axe": false},
        {"meanwhile": 4},
        {"wait": "#rows"},
    ]);
    let seen = beside(&browser, &mut scene, &steps, |number, scene| {
        if number % 2 == 1 {
            scene.cluster.stop_server(Stop::Immediate);
        } else {
            scene.cluster.start_server();
        }
    });
    assert!(seen.list("errors").is_empty(), "{:#}", seen.0["errors"]);
    let texts = texts(&seen);
    assert_eq!(
        texts[0],
        "No answer from the server: what is shown may be out of date"
    );
    assert!(texts[1].contains("All is well"), "{texts:#?}");
    assert_eq!(texts[2], "Updates every 2 s");
    let visits = seen.list("steps").iter();
    let unavailable = visits.filter(|step| step["status"] == 503);
    let titles: Vec<_> = unavailable.map(|step| step["title"].clone()).collect();
    assert_eq!(titles, ["The database cannot be used now. · mailroom"]);
}

#[test]
fn a_session_that_ended_leads_to_the_log_in_and_back() {
    let mut scene = Scene::start();
    let browser = scene.browser_of("ended", "maria");
    let steps = json!([
        {"visit": "/messages?state=error"},
        {"meanwhile": 1},
        {"wait": "#f-password"},
        {"wait_url": "/login?next=messages%3Fstate%3Derror"},
        {"fill": "#f-role", "with": "maria"},
        {"fill": "#f-password", "with": "hunter2"},
        {"click": "main form button"},
        {"read": ".note"},
        {"meanwhile": 2},
        // The role is kept, and where she was.
        {"fill": "#f-password", "with": "hunter2"},
        {"click": "main form button"},
        {"wait_url": "/messages?state=error"},
        {"wait": "#rows"},
    ]);
    let seen = beside(&browser, &mut scene, &steps, |number, scene| {
        let sql = match number {
            1 => {
                "ALTER ROLE maria NOLOGIN;
                 SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'maria'"
            }
            _ => "ALTER ROLE maria LOGIN",
        };
        scene.client.batch_execute(sql).unwrap();
    });
    assert!(seen.list("errors").is_empty(), "{:#}", seen.0["errors"]);
    assert_eq!(texts(&seen).len(), 1, "{:#?}", texts(&seen));
}
