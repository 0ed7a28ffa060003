//! `mailroom serve` beside a cluster without a worker, and the browsers of people.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};

use postgres::{Client, Config, NoTls};

use crate::cluster::{Cluster, Stop, eventually};
use crate::receive::http::{self, Answer};
use crate::sender_scene::{Sender, program};

/// Superusers need no password, all others do.
pub const ASKING: &str =
    "local all postgres trust\nlocal replication postgres trust\nlocal all all scram-sha-256\n";

/// A role for each of mailroom's, named after it, all with the password `hunter2`, and one that is a member of none.
const ROLES: &str = "
    SET password_encryption = 'scram-sha-256';
    DO $$
    DECLARE name text;
    BEGIN
        FOREACH name IN ARRAY '{monitor,support,admin,app,sender,collector,receiver}'::text[] LOOP
            EXECUTE format('CREATE ROLE %I LOGIN PASSWORD ''hunter2'' IN ROLE %I', name, 'mailroom_' || name);
        END LOOP;
    END $$;
    CREATE ROLE stranger LOGIN PASSWORD 'hunter2';
    CREATE ROLE root_of_all LOGIN SUPERUSER PASSWORD 'hunter2';";

/// The members of mailroom's roles.
pub const MEMBERS: [&str; 7] = [
    "monitor",
    "support",
    "admin",
    "app",
    "sender",
    "collector",
    "receiver",
];

/// Pages that support and admin see.
pub const READ: [&str; 14] = [
    "",
    "messages",
    "messages?q=a@example.com",
    "messages?q=1",
    "messages?state=error&kind=x",
    "messages.csv",
    "messages/1",
    "failures",
    "failures/retry?kind=x",
    "delivery",
    "templates",
    "templates/activation",
    "suppressions",
    "log",
];

pub const PASSWORD: &str = "hunter2";

/// A cluster whose server asks for passwords, with a database `app`.
pub struct Scene {
    pub client: Client,
    pub cluster: Cluster,
}

impl Scene {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(settings: &[&str]) -> Self {
        let mut all = vec!["shared_preload_libraries = ''"];
        all.extend(settings);
        let (cluster, mut client) = Cluster::start_with_app(&all);
        client.batch_execute(ROLES).unwrap();
        let scene = Self { client, cluster };
        scene.ask(ASKING);
        scene
    }

    /// Has the server ask as pg_hba.conf says.
    pub fn ask(&self, hba: &str) {
        let file = self.cluster.data().join("pg_hba.conf");
        std::fs::write(&file, hba).unwrap();
        let reloads = || self.cluster.log().matches("received SIGHUP").count();
        let before = reloads();
        self.cluster.reload();
        eventually("the server to read pg_hba.conf", || {
            (reloads() > before).then_some(())
        });
    }

    /// Has the server listen on these addresses, with further lines before what it asks; returns its port.
    pub fn listen(&mut self, addresses: &str, hba: &str) -> u16 {
        let port = crate::process::free_port();
        let hba = format!("local all postgres trust\n{hba}{ASKING}");
        std::fs::write(self.cluster.data().join("pg_hba.conf"), hba).unwrap();
        let lines = format!("port = {port}\nlisten_addresses = '{addresses}'\n");
        self.cluster.append("postgresql.auto.conf", &lines);
        self.cluster.stop_server(Stop::Fast);
        self.cluster.start_server();
        let mut config = Config::new();
        config.host_path(self.cluster.socket()).port(port);
        self.client = config
            .user("postgres")
            .dbname("app")
            .connect(NoTls)
            .unwrap();
        port
    }

    /// A number that this query returns.
    pub fn number(&mut self, query: &str) -> i64 {
        crate::cluster::number(&mut self.client, query)
    }

    /// A text that this query returns.
    pub fn text(&mut self, query: &str) -> String {
        self.client.query_one(query, &[]).unwrap().get(0)
    }

    /// How to connect to a database over the socket.
    pub fn url(&self, database: &str) -> String {
        format!("host={} dbname={database}", self.cluster.socket().display())
    }

    /// The same where the server has another port.
    pub fn url_at(&self, port: u16, database: &str) -> String {
        format!("{} port={port}", self.url(database))
    }

    /// Starts the program for the database `app`.
    pub fn serve(&self) -> Server {
        self.serve_at(&[self.url("app")], &[])
    }

    /// Starts the program for databases, with further options. It believes what a proxy says of browsers, so that each of
    /// a test can have its own address.
    pub fn serve_at(&self, urls: &[String], options: &[&str]) -> Server {
        let name = format!("serve-{}.log", crate::process::free_port());
        let mut program = program();
        program.args(["serve", "--behind-proxy"]);
        program.args(["--listen", &free_address()]);
        for url in urls {
            program.args(["--database", url]);
        }
        program.args(options);
        Server::start(Sender::spawn(program, self.cluster.scratch().join(name)))
    }
}

/// Where a program can listen.
pub fn free_address() -> String {
    format!("127.0.0.1:{}", crate::process::free_port())
}

/// The running program.
pub struct Server {
    pub program: Sender,
    pub address: SocketAddr,
    browsers: AtomicU16,
}

impl Server {
    pub fn start(program: Sender) -> Self {
        program.wait_for("listens on", 1);
        let log = program.log();
        let (_, rest) = log.split_once("listens on ").unwrap();
        let address = rest.lines().next().unwrap().trim();
        Self {
            address: address.parse().unwrap(),
            program,
            browsers: AtomicU16::new(1),
        }
    }

    /// A browser with an address of its own, which shows a database.
    pub fn browser(&self, database: &str) -> Browser<'_> {
        let number = self.browsers.fetch_add(1, Ordering::Relaxed);
        let [high, low] = number.to_be_bytes();
        Browser {
            server: self,
            from: format!("198.51.{high}.{low}"),
            base: format!("/{database}/"),
            host: self.address.to_string(),
            scheme: "http",
            cookies: RefCell::default(),
            csrf: RefCell::default(),
        }
    }

    /// A browser in which a role has logged in to the database `app`.
    pub fn of(&self, role: &str) -> Browser<'_> {
        let browser = self.browser("app");
        let answer = browser.log_in(role, PASSWORD);
        assert_eq!(answer.status, 303, "{role}: {}", words(&answer.body));
        browser
    }

    /// What it answers to a request that is sent as it is.
    pub fn exchange(&self, head: &str, body: &str) -> Answer {
        let length = body.len();
        let head = head.trim_end().replace('\n', "\r\n");
        let request =
            format!("{head}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
        http::exchange(self.address, request.as_bytes())
    }
}

/// What a browser does: it keeps cookies, knows where it is, and sends forms as their pages have them.
pub struct Browser<'a> {
    server: &'a Server,
    from: String,
    pub base: String,
    pub host: String,
    pub scheme: &'static str,
    /// Their values, by their names and paths.
    pub cookies: RefCell<BTreeMap<(String, String), String>>,
    csrf: RefCell<String>,
}

impl Browser<'_> {
    /// Sends a request with these header lines.
    pub fn send(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Answer {
        let mut head = format!(
            "{method} {path} HTTP/1.1\nHost: {}\nX-Forwarded-For: {}\n",
            self.host, self.from
        );
        for header in headers {
            head.push_str(&format!("{header}\n"));
        }
        let cookies = self.cookies.borrow().clone();
        let cookies = cookies.iter().filter(|((_, of), _)| path.starts_with(of));
        let cookies = cookies.map(|((name, _), value)| format!("{name}={value}"));
        let cookies: Vec<String> = cookies.collect();
        if !cookies.is_empty() {
            head.push_str(&format!("Cookie: {}\n", cookies.join("; ")));
        }
        let answer = self.server.exchange(&head, body);
        if let Some(cookie) = answer.header("set-cookie") {
            self.keep(cookie);
        }
        if let Some((_, rest)) = answer.body.split_once("name=\"csrf\" value=\"") {
            *self.csrf.borrow_mut() = rest.split('"').next().unwrap().to_owned();
        }
        answer
    }

    fn keep(&self, cookie: &str) {
        let (pair, rest) = cookie.split_once("; Path=").unwrap();
        let (name, value) = pair.split_once('=').unwrap();
        let path = rest.split(';').next().unwrap();
        let key = (name.to_owned(), path.to_owned());
        match value.is_empty() {
            true => self.cookies.borrow_mut().remove(&key),
            false => self.cookies.borrow_mut().insert(key, value.to_owned()),
        };
    }

    /// Gets a page of the database.
    pub fn get(&self, within: &str) -> Answer {
        self.send("GET", &format!("{}{within}", self.base), &[], "")
    }

    /// Gets a page, which has to be there; returns its source.
    pub fn page(&self, within: &str) -> String {
        let answer = self.get(within);
        assert_eq!(answer.status, 200, "{within}: {}", words(&answer.body));
        answer.body
    }

    /// Posts a form of the page that was shown last.
    pub fn post(&self, within: &str, fields: &[(&str, &str)]) -> Answer {
        let csrf = self.csrf.borrow().clone();
        let mut all = vec![("csrf", csrf.as_str())];
        all.extend(fields);
        let origin = format!("Origin: {}://{}", self.scheme, self.host);
        let headers = ["Content-Type: application/x-www-form-urlencoded", &origin];
        let path = format!("{}{within}", self.base);
        self.send("POST", &path, &headers, &encoded(&all))
    }

    /// Posts a form, and gets the page that it leads to; returns what is said on it.
    pub fn act(&self, within: &str, fields: &[(&str, &str)]) -> String {
        let answer = self.post(within, fields);
        assert_eq!(answer.status, 303, "{within}: {}", words(&answer.body));
        let to = answer.header("location").unwrap();
        let page = self.send("GET", to, &[], "");
        assert_eq!(page.status, 200, "{to}: {}", words(&page.body));
        notice(&page.body)
    }

    pub fn log_in(&self, role: &str, password: &str) -> Answer {
        let answer = self.post("login", &[("role", role), ("password", password)]);
        if answer.status == 303 {
            // A page with a form, for what is posted next.
            self.get("");
        }
        answer
    }

    /// What is said of a log-in that has to be refused.
    pub fn refused(&self, role: &str, password: &str) -> String {
        let answer = self.log_in(role, password);
        assert_eq!(answer.status, 403, "{role}: {}", words(&answer.body));
        assert_eq!(answer.header("set-cookie"), None);
        notice(&answer.body)
    }
}

/// Fields of a form as they are sent.
pub fn encoded(fields: &[(&str, &str)]) -> String {
    let escape = |text: &str| -> String {
        let escaped = text.bytes().map(|byte| match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        });
        escaped.collect()
    };
    let pairs = fields
        .iter()
        .map(|(name, value)| format!("{}={}", escape(name), escape(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// What a page says of what was done, or why not; empty if it says nothing.
pub fn notice(page: &str) -> String {
    let Some((_, rest)) = page.split_once("<div class=\"note") else {
        return String::new();
    };
    let (_, rest) = rest.split_once('>').unwrap();
    words(rest.split("</div>").next().unwrap())
}

/// The words of a part of a page.
pub fn words(html: &str) -> String {
    let mut text = String::new();
    // Within words.
    let html = html.replace("<bdi>", "").replace("</bdi>", "");
    for part in html.split('<') {
        text.push_str(part.split_once('>').map_or(part, |(_, text)| text));
        text.push(' ');
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&amp;", "&"),
    ]
    .iter()
    .fold(text, |text, (entity, character)| {
        text.replace(entity, character)
    })
}
