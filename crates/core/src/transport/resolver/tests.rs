//! Tests with a name server of their own.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hickory_resolver::config::{ConnectionConfig, NameServerConfig};
use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::{RData, Record};
use tokio::net::UdpSocket;

use super::*;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
/// The time that a name server has by default.
const LONG: Duration = Duration::from_secs(5);

/// The addresses of a name in one family, or no response.
type Answer = fn(&str, RecordType) -> Option<Vec<IpAddr>>;

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(test)
}

/// A system with this hosts file, the search domain corp.test, and a name server that answers so; and how many queries it
/// got.
async fn system(hosts: &str, answer: Answer) -> (System, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut connection = ConnectionConfig::udp();
    connection.port = socket.local_addr().unwrap().port();
    let server = NameServerConfig::new(Ipv4Addr::LOCALHOST.into(), true, vec![connection]);
    let search = vec![Name::from_ascii("corp.test.").unwrap()];
    let config = ResolverConfig::from_parts(None, search, vec![server]);
    let queries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&queries);
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
            count.fetch_add(1, Ordering::SeqCst);
            let mut message = Message::from_vec(&buffer[..length]).unwrap();
            let query = message.queries[0].clone();
            let name = query.name().to_ascii();
            let Some(addresses) = answer(&name, query.query_type()) else {
                continue;
            };
            message.metadata.message_type = MessageType::Response;
            let is_half = name == "half." && query.query_type() == RecordType::AAAA;
            if name.starts_with("nowhere.") || is_half {
                message.metadata.response_code = ResponseCode::NXDomain;
            }
            for address in addresses {
                let data = RData::from(address);
                message.add_answer(Record::from_rdata(query.name().clone(), 60, data));
            }
            socket
                .send_to(&message.to_vec().unwrap(), client)
                .await
                .unwrap();
        }
    });
    let mut file = Hosts::default();
    file.read_hosts_conf(hosts.as_bytes()).unwrap();
    let system = System::new(config, ResolverOpts::default(), file).unwrap();
    (system, queries)
}

fn both(name: &str, kind: RecordType) -> Option<Vec<IpAddr>> {
    match (name, kind) {
        ("both.test.", RecordType::A) => Some(vec![V4]),
        ("both.test.", RecordType::AAAA) => Some(vec![V6]),
        _ => Some(vec![]),
    }
}

#[test]
fn without_a_name_server_local_names_have_addresses() {
    for content in ["", "search example.com\noptions ndots:3\n"] {
        let (config, options) = read(content.into()).unwrap();
        let [server] = config.name_servers() else {
            panic!("one name server");
        };
        assert_eq!(server.ip, Ipv4Addr::LOCALHOST);
        assert_eq!(options.ndots, if content.is_empty() { 1 } else { 3 });
        let mut hosts = Hosts::default();
        hosts
            .read_hosts_conf("192.0.2.1 relay # ours".as_bytes())
            .unwrap();
        run(async {
            let system = System::new(config, options, hosts).unwrap();
            assert_eq!(system.look_up("relay").await.unwrap(), [V4]);
            let local = system.look_up("localhost").await.unwrap();
            assert_eq!(local[0], Ipv4Addr::LOCALHOST);
        });
    }
    let (config, _) = read(b"nameserver 192.0.2.1\n".into()).unwrap();
    assert_eq!(config.name_servers().len(), 1);
    assert_eq!(config.name_servers()[0].ip, V4);
}

#[test]
fn a_name_in_the_hosts_file_has_no_other_addresses() {
    run(async {
        let (system, queries) = system("10.0.0.1 Both.test\n::1 six", both).await;
        let found = system.look_up("both.test").await.unwrap();
        assert_eq!(found, [IpAddr::from([10, 0, 0, 1])]);
        assert_eq!(
            system.look_up("six").await.unwrap(),
            [IpAddr::from(Ipv6Addr::LOCALHOST)]
        );
        assert_eq!(queries.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_name_has_the_addresses_of_both_families_and_they_are_kept() {
    run(async {
        let (system, queries) = system("", both).await;
        for _ in 0..2 {
            assert_eq!(system.look_up("both.test").await.unwrap(), [V4, V6]);
        }
        assert_eq!(queries.load(Ordering::SeqCst), 2);
        assert!(system.look_up("none.test").await.is_err());
    });
}

#[test]
fn a_network_that_drops_the_queries_of_a_family_does_not_hold_up_the_other() {
    let only: [(Answer, IpAddr); 2] = [
        (|_, kind| (kind == RecordType::A).then(|| vec![V4]), V4),
        (|_, kind| (kind == RecordType::AAAA).then(|| vec![V6]), V6),
    ];
    for (answer, address) in only {
        run(async {
            let (system, _) = system("", answer).await;
            let began = Instant::now();
            assert_eq!(system.look_up("half.test").await.unwrap(), [address]);
            assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
        });
    }
}

#[test]
fn a_name_that_does_not_exist_holds_up_no_other() {
    run(async {
        let (names, _) = system("", |_, kind| (kind == RecordType::A).then(Vec::new)).await;
        let began = Instant::now();
        assert!(names.look_up("nowhere").await.is_err());
        assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
        // Some servers say so of the family that they do not have.
        let (half, _) = system("", |name, kind| match (name, kind) {
            ("half.", RecordType::A) => Some(vec![V4]),
            _ => Some(vec![]),
        })
        .await;
        assert_eq!(half.look_up("half.").await.unwrap(), [V4]);
    });
}

#[test]
fn the_domain_of_this_machine_counts_only_without_others() {
    let name = |text: &str| Name::from_ascii(text).unwrap();
    for (search, expected) in [
        (vec![], "prod.test."),
        (vec![name("corp.test.")], "corp.test."),
    ] {
        run(async {
            let config = ResolverConfig::from_parts(Some(name("prod.test.")), search, vec![]);
            let options = ResolverOpts::default();
            let system = System::new(config, options, Hosts::default()).unwrap();
            assert_eq!(system.search, [name(expected)]);
        });
    }
}

#[test]
fn the_addresses_are_those_of_one_name() {
    run(async {
        let (system, _) = system("", |name, kind| match (name, kind) {
            ("host.test." | "short.corp.test.", RecordType::A) => Some(vec![V4]),
            // A wildcard of the search domain.
            (name, RecordType::AAAA) if name.ends_with(".corp.test.") => Some(vec![V6]),
            _ => Some(vec![]),
        })
        .await;
        assert_eq!(system.look_up("host.test").await.unwrap(), [V4]);
        assert_eq!(system.look_up("short").await.unwrap(), [V4, V6]);
        assert_eq!(system.look_up("other.test").await.unwrap(), [V6]);
        assert!(system.look_up("other.test.").await.is_err());
    });
}

#[test]
fn names_that_no_domain_may_have_are_looked_up_as_the_system_does() {
    run(async {
        let hosts = "10.0.0.1 mail_relay\n10.0.0.2 relay_.corp";
        let (system, queries) = system(hosts, |name, kind| match (name, kind) {
            ("app_1.corp.test." | "xn--a.test.", RecordType::A) => Some(vec![V4]),
            _ => Some(vec![]),
        })
        .await;
        for (name, last) in [("mail_relay", 1), ("MAIL_RELAY", 1), ("relay_.corp", 2)] {
            let found = system.look_up(name).await.unwrap();
            assert_eq!(found, [IpAddr::from([10, 0, 0, last])], "{name}");
        }
        assert_eq!(queries.load(Ordering::SeqCst), 0);
        for name in ["app_1", "app_1.corp.test", "xn--a.test"] {
            assert_eq!(system.look_up(name).await.unwrap(), [V4], "{name}");
        }
    });
}

#[test]
fn a_host_that_is_an_address_is_no_name() {
    for (host, is_address) in [
        ("127.0.0.1", true),
        ("::1", true),
        ("[::1]", true),
        ("localhost", false),
        ("2130706433", false),
        ("", false),
    ] {
        assert_eq!(literal(host).is_some(), is_address, "{host}");
    }
}
