//! Debian's Postfix as a relay: one instance with a port for each way in which a relay may treat mail, and a Maildir
//! that gets one copy for each recipient.
//!
//! Postfix starts as root only: for another user, tests that need it print what they skip.

use std::collections::HashMap;
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::mails::{self, Arrived};
use super::process::{Process, directory};
use super::tls::Authority;
use crate::cluster::{eventually, eventually_or_tell, skip};

/// The directory of Postfix's internal programs in Debian.
const PROGRAMS: &str = "/usr/lib/postfix/sbin";
/// An unprivileged user who owns the mail: Postfix does not deliver as root.
const READER: u32 = 65534;
/// The user and password of the service `login`.
pub const LOGIN: (&str, &str) = ("shop", "wJalrXUtnFEMI");

/// The services, by the names of their transports, with the parameters that differ from main.cf.
const SERVICES: [(&str, &[&str]); 14] = [
    ("relay", &[]),
    ("implicit", &["smtpd_tls_wrappermode=yes"]),
    ("clear", &["smtpd_tls_security_level=none"]),
    ("ascii", &["smtputf8_enable=no"]),
    ("few", &["smtpd_recipient_limit=2"]),
    (
        "login",
        &[
            "smtpd_sasl_auth_enable=yes",
            "smtpd_recipient_restrictions=permit_sasl_authenticated,reject",
        ],
    ),
    ("refusing", &["smtpd_recipient_restrictions=$refusals"]),
    (
        "impatient",
        &[
            "smtpd_recipient_restrictions=$refusals",
            "smtpd_hard_error_limit=2",
        ],
    ),
    (
        "greylisting",
        &["smtpd_recipient_restrictions=check_policy_service,$postgrey"],
    ),
    ("small", &["message_size_limit=4000"]),
    (
        "silent",
        &[
            "message_size_limit=4000",
            "smtpd_discard_ehlo_keywords=size",
        ],
    ),
    ("full", &["queue_minfree=1000000000000000"]),
    ("narrow", &["smtpd_client_connection_count_limit=1"]),
    ("slow", &["smtpd_client_message_rate_limit=10"]),
];

/// A domain whose server, the service `refusing`, knows no user: a relay takes the mail, and reports that it failed.
pub const GONE: &str = "gone.example";
/// A domain whose mail is that of this machine, by `/etc/aliases`.
pub const LOCAL: &str = "reports.example";

/// The services of any installation of Postfix.
const DAEMONS: &str = "\
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
tlsmgr unix - - n 1000? 1 tlsmgr
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
proxymap unix - - n - - proxymap
virtual unix - n n - - virtual
local unix - n n - - local
smtp unix - - n - - smtp
anvil unix - - n - 1 anvil
retry unix - - n - - error
postlog unix-dgram n - n - 1 postlogd
";

/// The running instance.
pub struct Postfix {
    ports: HashMap<&'static str, u16>,
    home: PathBuf,
    /// The authority that issued the services' certificate.
    pub authority: &'static Authority,
    process: Process,
    _postgrey: Process,
}

impl Postfix {
    /// The instance of this test program. If this user may not start one, prints that and returns `None`.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Postfix> = OnceLock::new();
        let user = Command::new("id").arg("-u").output().unwrap();
        if user.stdout.trim_ascii() != b"0" {
            skip("only root can start Postfix");
            return None;
        }
        Some(SHARED.get_or_init(Self::start))
    }

    fn start() -> Self {
        let home = directory();
        let authority = Authority::shared();
        for (name, owner) in [
            ("conf", None),
            ("conf/sasl", None),
            ("queue", None),
            ("data", Some("postfix")),
            ("greylist", Some("postgrey")),
        ] {
            std::fs::create_dir(home.join(name)).unwrap();
            if let Some(user) = owner {
                give_to(user, &home.join(name));
            }
        }
        std::fs::create_dir(home.join("mail")).unwrap();
        chown(home.join("mail"), Some(READER), Some(READER)).unwrap();
        let ports: HashMap<_, _> = SERVICES
            .map(|(name, _)| (name, super::process::free_port()))
            .into_iter()
            .collect();
        write_configuration(&home, authority, &ports);
        put_aliases(&home, "");
        let postgrey = start_postgrey(&home);
        let check = Command::new("postfix")
            .arg("-c")
            .arg(home.join("conf"))
            .arg("check")
            .output();
        assert!(check.as_ref().unwrap().status.success(), "{check:?}");
        // With -D, master stays in this process group; it also runs debugger_command, which does nothing.
        let mut master = Command::new(format!("{PROGRAMS}/master"));
        master.args(["-D", "-s", "-c"]).arg(home.join("conf"));
        let mut process = Process::start(&master);
        process.printed("Postfix", |line| {
            line.contains("daemon started").then_some(())
        });
        Self {
            ports,
            home,
            authority,
            process,
            _postgrey: postgrey,
        }
    }

    /// The port of a service.
    pub fn port(&self, service: &str) -> u16 {
        self.ports[service]
    }

    /// The table of a transport to a service, with the service's name and with these additional lines.
    pub fn transport(&self, service: &str, more: &str) -> String {
        self.transport_to(service, service, more)
    }

    /// As [`Self::transport`], with another name.
    pub fn transport_to(&self, service: &str, name: &str, more: &str) -> String {
        let ca = self.authority.certificate.display();
        super::mails::transport(
            name,
            self.port(service),
            &format!("ca_file = \"{ca}\"\n{more}"),
        )
    }

    /// Has mail of the domain [`LOCAL`] delivered by this file of aliases.
    pub fn alias(&self, aliases: &str) {
        put_aliases(&self.home, aliases);
    }

    /// A copy of a program that users without privileges, who run the commands of aliases, can execute.
    pub fn copy_program(&self, program: &Path) -> PathBuf {
        let copy = self.home.join("program");
        std::fs::copy(program, &copy).unwrap();
        copy
    }

    /// All mail that has arrived, once the queue is empty. Fails if a mail bounced or was deferred, except for those to
    /// the domain [`GONE`].
    pub fn mails(&self) -> Vec<Arrived> {
        self.wait_until_delivered();
        let log = self.log();
        let bounced = log
            .lines()
            .filter(|line| !line.contains(GONE))
            .find(|line| line.contains("status=bounced") || line.contains("status=deferred"));
        assert_eq!(bounced, None);
        mails::read(&self.mailbox())
    }

    /// The directory with a file for each mail that has arrived.
    pub fn mailbox(&self) -> PathBuf {
        self.home.join("mail/box/new")
    }

    /// What Postfix has logged.
    pub fn log(&self) -> String {
        self.process.output()
    }

    /// Waits until the queue is empty: Postfix replies as soon as the mail is in its queue.
    pub fn wait_until_delivered(&self) {
        eventually_or_tell("Postfix to deliver", || {
            let queue = self.home.join("queue");
            let queues = ["incoming", "active", "deferred"].map(|name| queue.join(name));
            // A file may move from one directory to another between two checks.
            let is_empty = || queues.iter().all(|queue| files(queue) == 0);
            if is_empty() && is_empty() {
                Ok(())
            } else {
                Err(self.log())
            }
        });
    }
}

fn write_configuration(home: &Path, authority: &Authority, ports: &HashMap<&str, u16>) {
    let here = home.display();
    let (key, chain) = (authority.key.display(), authority.chain.display());
    let refusing = ports["refusing"];
    let main = format!(
        "compatibility_level = 3.6
myhostname = relay.test
queue_directory = {here}/queue
data_directory = {here}/data
daemon_directory = {PROGRAMS}
command_directory = /usr/sbin
maillog_file = /dev/stdout
debugger_command = true
notify_classes =
inet_protocols = ipv4
mydestination =
alias_maps = hash:{here}/conf/aliases
transport_maps = inline:{{ {{{LOCAL} = local}} {{{GONE} = smtp:[127.0.0.1]:{refusing}}} }}
mynetworks = 127.0.0.0/8
smtpd_relay_restrictions = permit_mynetworks, reject_unauth_destination
smtpd_recipient_restrictions =
smtpd_tls_security_level = may
smtpd_tls_auth_only = yes
smtpd_tls_chain_files = {key}, {chain}
smtpd_tls_received_header = yes
cyrus_sasl_config_path = {here}/conf/sasl
smtpd_sasl_local_domain = relay.test
smtpd_error_sleep_time = 0
smtpd_client_event_limit_exceptions =
anvil_rate_time_unit = 3s
virtual_mailbox_domains = static:all
virtual_mailbox_maps = static:box/
virtual_mailbox_base = {here}/mail
virtual_uid_maps = static:{READER}
virtual_gid_maps = static:{READER}
postgrey = unix:{here}/greylist/socket
refusals = check_recipient_access inline:{{
    {{unknown.example = 550 5.1.1 There is no such user}}
    {{{GONE} = 550 5.1.1 There is no such user}}
    {{busy.example = 450 4.2.0 The mailbox is in use}}
    {{policy.example = 554 5.7.1 Not from here}} }}
"
    );
    let mut master = DAEMONS.to_owned();
    for (name, parameters) in SERVICES {
        master.push_str(&format!("127.0.0.1:{} inet n - n - - smtpd", ports[name]));
        for parameter in parameters {
            master.push_str(&format!(" -o {parameter}"));
        }
        master.push('\n');
    }
    let sasldb = home.join("sasldb2");
    let sasl = format!(
        "pwcheck_method: auxprop\nauxprop_plugin: sasldb\nmech_list: PLAIN LOGIN\nsasldb_path: {}\n",
        sasldb.display()
    );
    for (name, content) in [
        ("main.cf", main),
        ("master.cf", master),
        ("sasl/smtpd.conf", sasl),
    ] {
        std::fs::write(home.join("conf").join(name), content).unwrap();
    }
    let (user, password) = LOGIN;
    let mut saslpasswd = Command::new("saslpasswd2")
        .args(["-p", "-c", "-u", "relay.test", "-f"])
        .arg(&sasldb)
        .arg(user)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = saslpasswd.stdin.take().unwrap();
    input.write_all(password.as_bytes()).unwrap();
    drop(input);
    assert!(saslpasswd.wait().unwrap().success());
    give_to("postfix", &sasldb);
}

fn put_aliases(home: &Path, aliases: &str) {
    let conf = home.join("conf");
    std::fs::write(conf.join("aliases"), aliases).unwrap();
    let mut postalias = Command::new("postalias");
    let output = postalias.arg("-c").arg(&conf).arg("hash:aliases");
    let output = output.current_dir(&conf).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Starts Postgrey, which defers mail for a recipient until more than a second after the first attempt.
fn start_postgrey(home: &Path) -> Process {
    let socket = home.join("greylist/socket");
    let mut postgrey = Command::new("/usr/sbin/postgrey");
    postgrey
        .arg(format!("--unix={}", socket.display()))
        .arg(format!("--dbdir={}", home.join("greylist").display()))
        .args(["--delay=1", "--auto-whitelist-clients=0"]);
    let process = Process::start(&postgrey);
    eventually("postgrey", || UnixStream::connect(&socket).ok());
    process
}

fn give_to(user: &str, path: &Path) {
    let status = Command::new("chown").arg(user).arg(path).status().unwrap();
    assert!(status.success());
}

/// The number of files in this directory and below.
fn files(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let count = entries.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files(&entry.path()),
        _ => 1,
    });
    count.sum()
}
