//! The key file, and signing with it.

#[pgrx::pg_schema]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    use pgrx::prelude::*;

    use crate::pg::catalog;
    use crate::pg_test::{one, refusal, set, sqlstate};
    use crate::settings;

    const KEY_A: &str = "deadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeef";
    const KEY_B: &str = "cafebabecafebabecafebabecafebabecafebabecafebabecafebabecafebabe";
    const SIGN: &str = "SELECT public._sign('activation', '\\x0707070707070707070707070707070707070707070707070707070707070707', NULL)";

    /// A key file of this test's own, in force until the end of the transaction.
    struct KeyFile(PathBuf);

    impl KeyFile {
        fn new(content: &str) -> Self {
            let name = format!("test-{}.key", std::process::id());
            set("mailroom.key_file", &name);
            let file = Self(data_directory().join(name));
            file.write(content);
            file
        }

        fn write(&self, content: &str) {
            // A new file, so that not even its inode is that of the old one.
            let next = self.0.with_extension("next");
            fs::write(&next, content).unwrap();
            fs::set_permissions(&next, fs::Permissions::from_mode(0o600)).unwrap();
            fs::rename(next, &self.0).unwrap();
        }

        fn chmod(&self, mode: u32) {
            fs::set_permissions(&self.0, fs::Permissions::from_mode(mode)).unwrap();
        }

        fn remove(&self) {
            fs::remove_file(&self.0).unwrap();
        }
    }

    /// What makes a key file useless.
    type Breakage = fn(&KeyFile);

    impl Drop for KeyFile {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn data_directory() -> PathBuf {
        PathBuf::from(one::<String>("SELECT current_setting('data_directory')"))
    }

    #[pg_extern]
    fn the_key_file_is_read_once_a_transaction() {
        let file = KeyFile::new(KEY_A);
        let by_a: String = one(SIGN);
        // A batch is signed with one key, even if the file changes meanwhile.
        file.write(KEY_B);
        assert_eq!(one::<String>(SIGN), by_a);
        file.chmod(0o644);
        assert_eq!(one::<String>(SIGN), by_a);
        file.write("rubbish");
        assert_eq!(one::<String>(SIGN), by_a);
        file.remove();
        assert_eq!(one::<String>(SIGN), by_a);
        file.write(KEY_A);
    }

    #[pg_extern]
    fn another_path_is_in_force_at_once() {
        let file = KeyFile::new(KEY_A);
        let by_a: String = one(SIGN);
        let other = file.0.with_extension("other");
        fs::write(&other, KEY_B).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
        set("mailroom.key_file", other.to_str().unwrap());
        let by_b: String = one(SIGN);
        fs::remove_file(&other).unwrap();
        assert_ne!(by_a, by_b);
        set("mailroom.key_file", file.0.to_str().unwrap());
        assert_eq!(one::<String>(SIGN), by_a);
    }

    #[pg_extern]
    fn a_mended_file_works_in_the_transaction_that_found_it_broken() {
        let file = KeyFile::new("rubbish");
        assert_eq!(sqlstate(SIGN), "F0000");
        file.write(KEY_A);
        assert_eq!(sqlstate(SIGN), "00000");
    }

    #[pg_extern]
    fn a_broken_file_has_a_sqlstate_of_its_kind_and_keeps_its_content() {
        let file = KeyFile::new("");
        let cases: [(&str, Breakage); 7] = [
            ("58P01", |file| file.remove()),
            ("F0000", |file| file.write("")),
            ("F0000", |file| file.write(&KEY_A[1..])),
            ("F0000", |file| file.write(&format!("{KEY_A}{KEY_B}"))),
            ("F0000", |file| file.write(&KEY_A.repeat(2000))),
            ("F0000", |file| {
                file.write(KEY_A);
                file.chmod(0o640);
            }),
            ("42501", |file| {
                file.write(KEY_A);
                file.chmod(0);
            }),
        ];
        for (number, (expected, break_it)) in cases.iter().enumerate() {
            break_it(&file);
            for statement in [SIGN, "SELECT public._verify('', 'activation', NULL)"] {
                let (state, message) = refusal(statement);
                assert_eq!(state, *expected, "case {number}: {message}");
                let lower = message.to_lowercase();
                assert!(
                    !lower.contains("beef") && !lower.contains("babe"),
                    "{message}"
                );
            }
        }
        file.write(KEY_A);
        assert_eq!(sqlstate(SIGN), "00000");
    }

    #[pg_extern]
    fn create_key_file_makes_one_and_never_replaces_one() {
        let file = KeyFile::new(KEY_A);
        Spi::run("SELECT public._create_key_file()").unwrap();
        assert_eq!(fs::read_to_string(&file.0).unwrap(), KEY_A);
        file.remove();
        Spi::run("SELECT public._create_key_file()").unwrap();
        let content = fs::read_to_string(&file.0).unwrap();
        assert_eq!(content.trim_end().len(), 64);
        assert_eq!(
            fs::metadata(&file.0).unwrap().permissions().mode() & 0o7777,
            0o600
        );
        file.remove();
        Spi::run("SELECT public._create_key_file()").unwrap();
        assert_ne!(
            fs::read_to_string(&file.0).unwrap(),
            content,
            "a new key is random"
        );
        // A file that is there but unusable is reported to the user who installs.
        file.chmod(0o644);
        assert_eq!(sqlstate("SELECT public._create_key_file()"), "F0000");
    }

    #[pg_extern]
    fn the_key_file_is_in_the_data_directory_unless_it_says_otherwise() {
        let data = data_directory();
        assert_eq!(settings::key_file(), data.join("mailroom.key"));
        set("mailroom.key_file", "keys/mail.key");
        assert_eq!(settings::key_file(), data.join("keys/mail.key"));
        set("mailroom.key_file", "/etc/mailroom/key");
        assert_eq!(settings::key_file(), Path::new("/etc/mailroom/key"));
        set("mailroom.key_file", "");
        assert_eq!(settings::key_file(), data.join("mailroom.key"));
    }

    #[pg_extern]
    fn sign_says_what_is_wrong_with_its_arguments() {
        let secret = "'\\x0707070707070707070707070707070707070707070707070707070707070707'";
        let cases = [
            (format!("NULL, {secret}, NULL"), "22004"),
            ("'activation', NULL, NULL".to_owned(), "22004"),
            (format!("'password_recovery', {secret}, NULL"), "22004"),
            ("'activation', '\\x07', NULL".to_owned(), "22023"),
            (format!("'password_recovery', {secret}, '1234'"), "22023"),
            (format!("'password_recovery', {secret}, '12345 '"), "22023"),
            (format!("'password_recovery', {secret}, ''"), "22023"),
            // Out of reach of mailroom_sign, whose argument is an enum.
            (format!("'invitation', {secret}, NULL"), "22023"),
            (format!("'Activation', {secret}, NULL"), "22023"),
            (format!("'', {secret}, NULL"), "22023"),
        ];
        for (arguments, expected) in cases {
            let (state, message) = refusal(&format!("SELECT public._sign({arguments})"));
            assert_eq!(state, expected, "{arguments}: {message}");
        }
    }

    #[pg_extern]
    fn verify_answers_false_to_whatever_is_not_a_token() {
        for arguments in [
            "NULL, 'activation', NULL",
            "'', NULL, NULL",
            "'', 'invitation', NULL",
            "'', 'password_recovery', NULL",
            "'', 'password_recovery', '1'",
            "repeat('A', 86), 'activation', NULL",
            "repeat('A', 10000000), 'activation', NULL",
            "E'\\u00e9', 'activation', NULL",
        ] {
            assert!(
                !one::<bool>(&format!("SELECT public._verify({arguments})")),
                "{arguments}"
            );
        }
    }

    #[pg_extern]
    fn what_is_signed_verifies() {
        let genuine: i64 = one(
            "SELECT count(*)
             FROM (SELECT public._random_secret() AS secret, public._random_code() AS code
                   FROM generate_series(1, 1000) OFFSET 0) t
             WHERE public._verify(public._sign('activation', secret, NULL), 'activation', NULL)
               AND public._verify(public._sign('password_recovery', secret, code), 'password_recovery', code)
               AND NOT public._verify(public._sign('activation', secret, NULL), 'password_recovery', code)
               AND NOT public._verify(public._sign('password_recovery', secret, code), 'activation', NULL)",
        );
        assert_eq!(genuine, 1000);
    }

    #[pg_extern]
    fn a_sqlstate_is_five_characters() {
        assert_eq!(
            catalog::sqlstate(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE),
            "22023"
        );
        assert_eq!(
            catalog::sqlstate(PgSqlErrorCode::ERRCODE_CONFIG_FILE_ERROR),
            "F0000"
        );
    }
}
