use super::*;
use tokio_postgres::config::Host as ConfigHost;

fn around(variables: &[(&str, &str)]) -> Environment {
    Environment {
        variables: variables
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
        home: None,
        user: "ada".to_owned(),
        application: "mailroom send",
    }
}

fn parse(given: &str) -> Target {
    Target::parse(given, &around(&[])).unwrap()
}

fn error(given: &str) -> String {
    Target::parse(given, &around(&[]))
        .err()
        .unwrap()
        .to_string()
}

fn host(name: &str) -> ConfigHost {
    ConfigHost::Tcp(name.to_owned())
}

/// The configuration of the first host.
fn first(target: &Target) -> Config {
    target.hosts().remove(0).config
}

#[test]
fn a_url_gives_all_there_is() {
    let target = parse(
        "postgresql://shop%20user:p%40ss:w@rd@db1.example:6432,[2001:db8::1]/my%2Fdb?sslmode=disable&connect_timeout=3",
    );
    let config = first(&target);
    assert_eq!(config.get_user(), Some("shop user"));
    assert_eq!(config.get_password(), Some(&b"p@ss:w@rd"[..]));
    let hosts = target.hosts();
    let places = hosts.iter().map(|one| {
        let config = &one.config;
        (config.get_hosts()[0].clone(), config.get_ports()[0])
    });
    let expected = [(host("db1.example"), 6432), (host("2001:db8::1"), 5432)];
    assert_eq!(places.collect::<Vec<_>>(), expected);
    assert_eq!(config.get_dbname(), Some("my/db"));
    assert_eq!(config.get_connect_timeout(), Some(&Duration::from_secs(3)));
    assert_eq!(config.get_ssl_mode(), SslMode::Disable);
    assert_eq!(
        config.get_target_session_attrs(),
        TargetSessionAttrs::ReadWrite,
        "of several hosts the one that can be written to"
    );
    assert_eq!(target.label(), "my/db@db1.example:6432,2001:db8::1");
}

#[test]
fn a_socket_can_be_in_a_url() {
    let target = parse("postgres:///app?host=/run/pg&port=5433&sslmode=verify-full");
    let config = first(&target);
    assert_eq!(config.get_hosts(), [ConfigHost::Unix("/run/pg".into())]);
    assert_eq!(config.get_ports(), [5433]);
    assert_eq!(config.get_ssl_mode(), SslMode::Disable, "as in libpq");
    let target = parse("postgresql://%2Frun%2Fpg/app");
    assert_eq!(
        first(&target).get_hosts(),
        [ConfigHost::Unix("/run/pg".into())]
    );
}

#[test]
fn each_host_has_its_own_address_port_and_mode_of_tls() {
    let given = "host=/run/pg,db,,/run/pg hostaddr=,192.0.2.1,192.0.2.2,2001:db8::1 port=,6000,, sslmode=require";
    let hosts = parse(given).hosts();
    let places = hosts.iter().map(|one| {
        let config = &one.config;
        let address = config.get_hostaddrs().first().map(ToString::to_string);
        let (name, port) = (config.get_hosts()[0].clone(), config.get_ports()[0]);
        (
            name,
            address.unwrap_or_default(),
            port,
            config.get_ssl_mode(),
        )
    });
    let tcp = |name: &str, address: &str, port: u16| {
        (host(name), address.to_owned(), port, SslMode::Require)
    };
    let expected = [
        (
            ConfigHost::Unix("/run/pg".into()),
            String::new(),
            5432,
            SslMode::Disable,
        ),
        tcp("db", "192.0.2.1", 6000),
        tcp("192.0.2.2", "192.0.2.2", 5432),
        tcp("2001:db8::1", "2001:db8::1", 5432),
    ];
    assert_eq!(places.collect::<Vec<_>>(), expected);
}

#[test]
fn keyword_strings_are_quoted_as_in_libpq() {
    let target = parse(r"host = db user='a b' password='it\'s \\' dbname=x\ y port=1");
    let config = first(&target);
    assert_eq!(config.get_user(), Some("a b"));
    assert_eq!(config.get_password(), Some(&br"it's \"[..]));
    assert_eq!(config.get_dbname(), Some("x y"));
    assert_eq!(config.get_ports(), [1]);
}

#[test]
fn what_is_not_said_comes_from_the_environment() {
    let around = around(&[
        ("PGHOST", "db"),
        ("PGPORT", "6000"),
        ("PGUSER", "sender"),
        ("PGPASSWORD", "hunter2"),
        ("PGDATABASE", "other"),
        ("PGSSLMODE", "require"),
        ("PGCONNECT_TIMEOUT", "7"),
    ]);
    let config = first(&Target::parse("app", &around).unwrap());
    assert_eq!(config.get_hosts(), [host("db")]);
    assert_eq!(config.get_ports(), [6000]);
    assert_eq!(config.get_user(), Some("sender"));
    assert_eq!(config.get_password(), Some(&b"hunter2"[..]));
    assert_eq!(config.get_dbname(), Some("app"), "the argument wins");
    assert_eq!(config.get_ssl_mode(), SslMode::Require);
    let seven = Duration::from_secs(7);
    assert_eq!(config.get_connect_timeout(), Some(&seven));
}

#[test]
fn the_user_is_that_of_the_system_and_the_database_that_of_the_user() {
    let config = first(&parse("host=db"));
    assert_eq!(config.get_user(), Some("ada"));
    assert_eq!(config.get_dbname(), Some("ada"));
    let connect_timeout = config.get_connect_timeout();
    assert_eq!(connect_timeout, Some(&CONNECT_TIMEOUT));
}

#[test]
fn modes_of_tls_are_those_of_libpq() {
    let mode = |given: &str| parse(given).tls.mode;
    assert_eq!(mode("host=db"), Mode::Prefer);
    assert_eq!(mode("host=db sslmode=require"), Mode::Require);
    let with_roots = "host=db sslmode=require sslrootcert=/ca.pem";
    assert_eq!(mode(with_roots), Mode::VerifyCa);
    assert_eq!(mode("host=db sslmode=verify-full"), Mode::VerifyFull);
    assert_eq!(mode("host=db sslrootcert=system"), Mode::VerifyFull);
    let target = parse("host=db sslmode=verify-ca sslrootcert=/ca.pem");
    assert_eq!(first(&target).get_ssl_mode(), SslMode::Require);
    assert_eq!(target.tls.roots, Some(Roots::File("/ca.pem".into())));
}

#[test]
fn errors_name_options_and_hold_no_value() {
    for (given, wrong) in [
        ("host=db sslmode=hunter2", "sslmode"),
        ("host=db hunter2", "word without"),
        ("host=db port=hunter2", "port"),
        ("postgresql://u:hunter2%zz@db/", "%"),
        ("postgresql://db/?application_name", "no value"),
        ("postgresql://[::1/app", "bracket"),
        ("host=db passwort=hunter2", "option 2 "),
        ("host=db sslcrl=hunter2", "\"sslcrl\" is not supported"),
        ("password=ab hunter2=ef", "needs quotes"),
        ("password=ab hunter2 =ef", "needs quotes"),
        ("postgresql://db/app?password=ab&hunter2=ef", "%26"),
        (
            "postgresql+asyncpg://app:hunter2@db/app?ssl=require",
            "postgresql://",
        ),
        ("postgresql+psycopg2://app:hunter2@db/app", "postgresql://"),
        ("Postgresql://app:hunter2@db/app", "postgresql://"),
        (" postgresql://app:hunter2@db/app", "postgresql://"),
        ("app:hunter2@db/app", "postgresql://"),
        ("postgresql://app:12/hunter2@db/app", "%2F"),
        ("dbname=postgres://app:hunter2@db/app", "dbname"),
        ("host=app:hunter2@db", "host"),
        ("host=db password='hunter2", "quote"),
        ("host=a,b port=1,2,3", "ports"),
        ("host=db;user=app;password=hunter2", "white space"),
        ("dbname=app,password=hunter2", "white space"),
        ("host=a hostaddr=hunter2", "hostaddr"),
        (
            "host=a target_session_attrs=hunter2",
            "target_session_attrs",
        ),
        ("host=a sslmode=require sslrootcert=system", "verify-full"),
    ] {
        let told = error(given);
        assert!(told.contains(wrong), "{given}: {told}");
        assert!(!told.contains("hunter2"), "{given}: {told}");
    }
}

#[test]
fn a_password_may_look_like_a_url() {
    let target = parse("host=db password=x://a:b@c dbname=app");
    assert_eq!(target.label(), "app@db");
    assert_eq!(first(&target).get_password(), Some(&b"x://a:b@c"[..]));
}

#[test]
fn password_files_are_read_as_libpq_reads_them() {
    let content = "# a comment\n\
        db:5432:app:ada:first\n\
        db:*:*:ada:it\\:s \\\\ here\n\
        \\*:*:*:*:star\n\
        *:*:*:eve:a:b\n";
    let find = |wanted: [&str; 4]| passfile::find(content, &wanted);
    assert_eq!(find(["db", "5432", "app", "ada"]).unwrap(), "first");
    assert_eq!(find(["db", "1", "app", "ada"]).unwrap(), "it:s \\ here");
    assert_eq!(find(["*", "1", "app", "bob"]).unwrap(), "star");
    assert_eq!(find(["x", "1", "app", "bob"]), None);
    assert_eq!(find(["x", "1", "app", "eve"]).unwrap(), "a:b");
}

/// Writes a password file; the name is that of the test.
fn write_passfile(name: &str, content: &str, mode: u32) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("mailroom-{name}-{}", std::process::id()));
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn each_host_has_the_password_of_its_own_line() {
    let content = "other:5432:*:*:second\ndb:6000:*:*:third\nlocalhost:*:*:*:fourth\n";
    let path = write_passfile("hosts", content, 0o600);
    let target = parse(&format!(
        "host=db,other,db,/tmp port=5432,5432,6000,5432 passfile={}",
        path.display()
    ));
    let hosts = target.hosts();
    let passwords = hosts.iter().map(|host| host.config.get_password());
    let expected = [
        None,
        Some(&b"second"[..]),
        Some(&b"third"[..]),
        Some(&b"fourth"[..]),
    ];
    assert_eq!(passwords.collect::<Vec<_>>(), expected);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_password_file_for_others_to_read_is_not_used() {
    let content = "localhost:5432:*:*:secret\n";
    for (mode, password) in [(0o600, Some(&b"secret"[..])), (0o640, None)] {
        let path = write_passfile("modes", content, mode);
        let given = format!("host=/tmp user=ada passfile={}", path.display());
        let target = parse(&given);
        assert_eq!(first(&target).get_password(), password);
        assert_eq!(target.unused_passfile().is_some(), password.is_none());
        let target = parse(&format!("{given} password=x"));
        assert_eq!(target.unused_passfile(), None, "it is not needed");
        std::fs::remove_file(&path).unwrap();
    }
}
