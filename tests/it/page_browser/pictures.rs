//! The pictures of README and book, made from the running page: `make pictures` writes them into docs/pictures.
// needs: browser

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::book::PICTURES;
use super::scene::Scene;

/// A provider has refused the credentials for twelve minutes, and mail for it waits.
const TROUBLE: &str = r#"
    SELECT _publish_transports('mailroom send/mx1.shop.example/6b0c22813dcc', '[
        {"name": "smtp", "provider": "smtp"},
        {"name": "ses", "provider": "ses", "state": "paused", "reason": "the credentials were refused (401)"},
        {"name": "crm", "provider": "webhook"}
    ]');
    UPDATE transports SET since = now() - interval '12 minutes', next_probe_at = now() + interval '40 seconds' WHERE name = 'ses';
    INSERT INTO outbox (transport, kind, recipients, subject, body_text, send_at)
    SELECT 'ses', 'newsletter', ARRAY['reader' || i || '@example.com'], 'Winter tea has arrived', 'Tea.', now() - interval '12 minutes'
    FROM generate_series(1, 412) i;
    ANALYZE outbox;"#;

#[test]
fn pictures_are_made_from_the_running_page() {
    let mut scene = Scene::start();
    let folder = match std::env::var_os("MAILROOM_PICTURES") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures"),
    };
    let invoice = scene.id("subject = 'Your invoice 1043'");
    let message = format!("/messages/{invoice}");
    let shoot = |pictures: &[(&str, &str)], scene: &Scene| {
        let shot = |(name, path): &(&str, &str)| {
            let picture = PICTURES.iter().find(|one| one.name == *name).unwrap();
            json!({
                "visit": path, "axe": false, "shot": name, "full": picture.is_whole,
                "width": picture.width, "height": picture.height, "scheme": picture.scheme,
            })
        };
        let steps: Vec<Value> = pictures.iter().map(shot).collect();
        let browser = scene.browser_of("pictures", "ops");
        let browser = browser.with("shots", folder.to_str().unwrap());
        browser.run(&steps.into()).assert_sound();
    };
    let pages = [
        ("messages", "/messages?q=ann%40example.com"),
        ("message", &message),
        ("phone", &message),
    ];
    shoot(&pages, &scene);
    scene.client.batch_execute(TROUBLE).unwrap();
    shoot(&[("now", "/")], &scene);

    for picture in &PICTURES {
        let name = picture.file();
        let made = super::book::read(&folder.join(&name));
        let kept = super::book::read(&super::book::folder().join(&name));
        assert_eq!(made.width, kept.width, "{name}");
        for (made, kept) in [(made.height, kept.height), (made.octets, kept.octets)] {
            let alike = kept - kept / 4..=kept + kept / 4;
            assert!(
                alike.contains(&made),
                "{name}: {made}, not {kept}: run make pictures"
            );
        }
    }
}
