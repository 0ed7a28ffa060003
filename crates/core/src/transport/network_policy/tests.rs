//! Tests of the policy as a function of the list and the address.

use super::*;
use proptest::prelude::*;

fn permit(networks: &str, address: &str) -> bool {
    AllowedNetworks::parse(networks)
        .unwrap()
        .judge(address.parse().unwrap(), Exposed::Nothing)
        .is_ok()
}

#[test]
fn what_is_not_public_is_refused() {
    for address in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.168.1.1",
        "198.19.0.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b::1:8.8.8.8",
        "64:ff9b:1::1",
        "64:ff9b:1::8.8.8.8",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "4000::1",
    ] {
        assert!(!permit("", address), "{address}");
    }
}

#[test]
fn public_addresses_are_not() {
    for address in [
        "1.1.1.1",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.0.1",
        "172.32.0.1",
        "193.0.0.1",
        "223.255.255.255",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2606:4700:4700::1111",
        "2a00:1450:4001:80e::200e",
    ] {
        assert!(permit("", address), "{address}");
    }
}

#[test]
fn a_listed_network_is_permitted_and_nothing_beside_it() {
    assert!(permit("127.0.0.1", "127.0.0.1"));
    assert!(!permit("127.0.0.1", "127.0.0.2"));
    assert!(permit("10.1.0.0/16, ::1", "10.1.255.255"));
    assert!(permit("10.1.0.0/16, ::1", "::1"));
    assert!(permit("10.1.0.0/16, ::1", "::ffff:10.1.2.3"));
    assert!(!permit("10.1.0.0/16, ::1", "10.2.0.1"));
    assert!(permit("0.0.0.0/0", "127.0.0.1"));
    assert!(!permit("0.0.0.0/0", "::1"));
    assert!(permit("::/0", "fe80::1"));
}

#[test]
fn without_tls_only_listed_private_addresses_get_mail_and_only_loopback_credentials() {
    let judge = |networks: &str, address: &str, exposed| {
        let networks = AllowedNetworks::parse(networks).unwrap();
        networks.judge(address.parse().unwrap(), exposed)
    };
    let (mail, credentials) = (Exposed::Mail, Exposed::Credentials);
    let everything = "0.0.0.0/0, ::/0";
    for address in ["127.0.0.1", "::ffff:127.0.0.1", "::1"] {
        for exposed in [mail, credentials] {
            assert_eq!(judge(everything, address, exposed), Ok(()), "{address}");
            let denial = Denial::NotPublic(address.parse().unwrap());
            assert_eq!(judge("", address, exposed), Err(denial), "{address}");
        }
    }
    for address in [
        "10.1.2.3",
        "172.18.0.2",
        "192.168.1.1",
        "100.64.0.1",
        "198.19.249.2",
        "169.254.1.1",
        "::ffff:172.18.0.2",
        "fd00::2",
        "fe80::1",
    ] {
        assert_eq!(judge(everything, address, mail), Ok(()), "{address}");
        let ip = address.parse().unwrap();
        assert_eq!(judge("", address, mail), Err(Denial::NotPublic(ip)));
        for networks in ["", everything] {
            let denial = Err(Denial::CredentialsInClear(ip));
            assert_eq!(judge(networks, address, credentials), denial, "{address}");
        }
    }
    // Public, or on their way to a translator or tunnel.
    for address in [
        "8.8.8.8",
        "::ffff:8.8.8.8",
        "2606:4700:4700::1111",
        "64:ff9b::8.8.8.8",
        "64:ff9b::10.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b:1::8.8.8.8",
        "2002:808:808::1",
        "2001::1",
        "::8.8.8.8",
    ] {
        let ip = address.parse().unwrap();
        for networks in ["", everything, "8.8.8.8", "127.0.0.0/8"] {
            let denied = judge(networks, address, mail);
            assert_eq!(denied, Err(Denial::MailInClear(ip)), "{address}");
            let denied = judge(networks, address, credentials);
            assert_eq!(denied, Err(Denial::CredentialsInClear(ip)), "{address}");
        }
    }
}

#[test]
fn the_file_is_told_of_an_address_that_must_not_be_spoken_to_in_clear() {
    let networks = AllowedNetworks::parse("127.0.0.0/8, 172.16.0.0/12").unwrap();
    let judge = |host, exposed, whose| {
        let judged = networks.judge_setting(host, exposed, whose);
        judged.map_err(|invalid| invalid.to_string())
    };
    for whose in [Server::Relay, Server::Endpoint] {
        for host in ["127.0.0.1", "mailpit", "8.8.8.8.example", "10.0.0.1"] {
            assert_eq!(judge(host, Exposed::Mail, whose), Ok(()));
        }
        for host in ["127.0.0.1", "[::1]", "mailpit"] {
            assert_eq!(judge(host, Exposed::Credentials, whose), Ok(()));
        }
        assert_eq!(judge("8.8.8.8", Exposed::Nothing, whose), Ok(()));
    }
    assert_eq!(
        judge("172.18.0.2", Exposed::Credentials, Server::Relay).unwrap_err(),
        "tls is \"none\", and credentials are sent without TLS to loopback addresses only"
    );
    assert_eq!(
        judge("[2606:4700::1]", Exposed::Mail, Server::Endpoint).unwrap_err(),
        "endpoint is an http URL, and mail is sent without TLS to private addresses only"
    );
}

#[test]
fn an_address_that_was_denied_is_remembered() {
    let networks = AllowedNetworks::parse("127.0.0.1").unwrap();
    let select = |addresses: &[&str], exposed| {
        let addresses = addresses.iter().map(|address| address.parse().unwrap());
        networks.select(addresses.collect(), exposed)
    };
    let (tls, clear) = (Exposed::Nothing, Exposed::Mail);
    let (public, private, loopback) = ("8.8.8.8", "64:ff9b::10.0.0.1", "127.0.0.1");
    let permitted = |address: &str, denied: Option<&str>| {
        Ok(Permitted {
            addresses: vec![address.parse().unwrap()],
            denied: denied.map(|address| address.parse().unwrap()),
        })
    };
    assert_eq!(select(&[public], tls), permitted(public, None));
    assert_eq!(
        select(&[private, public], tls),
        permitted(public, Some(private))
    );
    assert_eq!(
        select(&[public, loopback], clear),
        permitted(loopback, Some(public))
    );
    let private = Denial::NotPublic(private.parse().unwrap());
    assert_eq!(select(&["64:ff9b::10.0.0.1"], tls), Err(private));
    let public_denied = Denial::MailInClear(public.parse().unwrap());
    assert_eq!(select(&[public], clear), Err(public_denied));
}

#[test]
fn what_is_no_network_is_named() {
    for (list, part) in [
        ("127.0.0.1/33", "127.0.0.1/33"),
        ("::1/129", "::1/129"),
        ("127.0.0.0/8, localhost", "localhost"),
        ("10.0.0.0/", "10.0.0.0/"),
        ("10.0.0.0/+8", "10.0.0.0/+8"),
        ("10.0.0.0/0008", "10.0.0.0/0008"),
    ] {
        assert_eq!(AllowedNetworks::parse(list), Err(part.to_owned()));
    }
    assert_eq!(
        AllowedNetworks::parse(" , "),
        Ok(AllowedNetworks::default())
    );
}

proptest! {
    #[test]
    fn mapped_addresses_are_what_they_stand_for(bits: u32) {
        let v4 = Ipv4Addr::from_bits(bits);
        let networks = AllowedNetworks::default();
        let [.., high, low] = v4.to_ipv6_mapped().segments();
        let translated = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low);
        let permit = |address: IpAddr| networks.judge(address, Exposed::Nothing).is_ok();
        prop_assert_eq!(permit(v4.into()), permit(v4.to_ipv6_mapped().into()));
        prop_assert_eq!(permit(v4.into()), permit(translated.into()));
    }

    #[test]
    fn no_list_lets_public_addresses_be_spoken_to_in_clear(bits: u32) {
        let v4 = Ipv4Addr::from_bits(bits);
        let all = AllowedNetworks::parse("0.0.0.0/0, ::/0").unwrap();
        let is_clear = all.judge(v4.into(), Exposed::Mail).is_ok();
        let is_public = AllowedNetworks::default().judge(v4.into(), Exposed::Nothing).is_ok();
        prop_assert_eq!(is_clear, !is_public);
        let is_clear = all.judge(v4.into(), Exposed::Credentials).is_ok();
        prop_assert_eq!(is_clear, v4.is_loopback());
    }

    #[test]
    fn no_private_v4_slips_through(bits: u32) {
        let v4 = Ipv4Addr::from_bits(bits);
        let special = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast()
            || v4.is_unspecified() || v4.is_broadcast() || v4.is_documentation();
        let judged = AllowedNetworks::default().judge(v4.into(), Exposed::Nothing);
        prop_assert!(!(special && judged.is_ok()));
    }
}
