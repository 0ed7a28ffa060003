//! The blocks of the book that `book_blocks` does not execute itself.

/// The blocks that other tests execute: page, info string of the fence, and test.
pub const ELSEWHERE: [(&str, &str, &str); 30] = [
    (
        "README.md",
        "console",
        "readme::the_picture_is_what_the_demonstration_shows",
    ),
    (
        "docs/guides/consumers.md",
        "python",
        "senders::the_python_sender_delivers_by_smtp",
    ),
    (
        "docs/guides/consumers.md",
        "js",
        "drivers::the_sender_of_the_book_for_node_delivers",
    ),
    (
        "docs/guides/consumers.md",
        "rust",
        "senders::the_rust_sender_delivers_by_smtp",
    ),
    (
        "docs/guides/django.md",
        "python",
        "frameworks::django_schedules_with_the_order",
    ),
    (
        "docs/guides/events.md",
        "python",
        "frameworks::the_route_for_django_passes_events_on",
    ),
    (
        "docs/guides/events.md",
        "js",
        "frameworks::the_route_for_express_passes_events_on",
    ),
    (
        "docs/guides/events.md",
        "php",
        "frameworks::the_route_for_php_passes_events_on",
    ),
    (
        "docs/guides/events.md",
        "sh receive",
        "book_commands::the_endpoint_for_events_starts_as_described",
    ),
    (
        "docs/guides/events.md",
        "text aliases",
        "receive::a_report_of_a_relay_is_read_as_in_the_book",
    ),
    (
        "docs/guides/node.md",
        "js",
        "frameworks::node_schedules_with_the_order",
    ),
    (
        "docs/guides/page.md",
        "text hba",
        "book_commands::the_page_is_served_as_described",
    ),
    (
        "docs/guides/page.md",
        "sh page",
        "book_commands::the_page_is_served_as_described",
    ),
    (
        "docs/guides/page.md",
        "sh databases",
        "book_commands::the_page_is_served_as_described",
    ),
    (
        "docs/guides/page.md",
        "sh proxy",
        "book_commands::the_page_is_served_as_described",
    ),
    (
        "docs/guides/page.md",
        "nginx",
        "book_commands::a_proxy_serves_the_page_as_described",
    ),
    (
        "docs/guides/rails.md",
        "ruby",
        "frameworks::rails_schedules_with_the_order",
    ),
    (
        "docs/guides/unsubscribing.md",
        "python",
        "frameworks::the_route_for_django_unsubscribes",
    ),
    (
        "docs/guides/unsubscribing.md",
        "js",
        "frameworks::the_route_for_express_unsubscribes",
    ),
    (
        "docs/guides/change-streams.md",
        "properties",
        "change_stream::the_recipe_emits_each_new_message_once_and_no_secret",
    ),
    (
        "docs/guides/testing.md",
        "sql whole",
        "book_commands::a_whole_mail_is_seen_as_described",
    ),
    (
        "docs/guides/testing.md",
        "text",
        "book_commands::a_whole_mail_is_seen_as_described",
    ),
    (
        "docs/guides/testing.md",
        "python",
        "readme::the_demonstration_stays_until_it_is_ended",
    ),
    (
        "docs/operations/key-file.md",
        "sh key",
        "book_commands::the_key_is_rotated_as_described",
    ),
    (
        "docs/operations/backup.md",
        "sh backup",
        "book_commands::a_database_is_restored_as_described",
    ),
    (
        "docs/operations/backup.md",
        "sh copy",
        "book_commands::a_database_is_restored_as_described",
    ),
    (
        "docs/operations/backup.md",
        "sh policies",
        "book_commands::a_database_is_restored_as_described",
    ),
    (
        "docs/operations/backup.md",
        "sh clone",
        "book_commands::a_copied_data_directory_sends_nothing",
    ),
    (
        "docs/operations/upgrades.md",
        "sh replicate",
        "book_commands::a_subscriber_takes_over_as_described",
    ),
    (
        "docs/operations/upgrades.md",
        "sh switch",
        "book_commands::a_subscriber_takes_over_as_described",
    ),
];

/// The blocks that no test executes: page, info string of the fence, and reason.
pub const NOT_EXECUTED: [(&str, &str, &str); 10] = [
    (
        "README.md",
        "sh debian",
        "it installs packages, as `make installed` does on systems of its own",
    ),
    (
        "docs/start/install.md",
        "sh debian",
        "`make installed` executes it on systems of its own, as root",
    ),
    (
        "docs/guides/several-machines.md",
        "sh debian",
        "`make installed` starts the unit on systems of its own, as root",
    ),
    (
        "docs/guides/several-machines.md",
        "ini systemd",
        "no systemd runs in a test",
    ),
    (
        "docs/guides/several-machines.md",
        "ini credential",
        "`make installed` gives it to a unit on systems of its own, as root",
    ),
    (
        "docs/guides/events.md",
        "sh debian",
        "`make installed` starts the unit on systems of its own, as root",
    ),
    (
        "docs/guides/events.md",
        "ini systemd",
        "no systemd runs in a test",
    ),
    (
        "docs/guides/page.md",
        "sh debian",
        "`make installed` starts the unit on systems of its own, as root",
    ),
    (
        "docs/guides/page.md",
        "ini systemd",
        "no systemd runs in a test",
    ),
    (
        "docs/guides/page.md",
        "caddy",
        "nginx, which is executed, stands for it",
    ),
];
