import re
def sub(path, *pairs):
    s=open(path).read()
    for a,b in pairs:
        assert a in s, (path,a)
        s=s.replace(a,b)
    open(path,'w').write(s)
sub('../transport.rs',
 ("//! | [`config`] |","//! | [`invalid`] | an invalid setting (pure) |\n//! | [`config`] |"),
 ("pub mod http;\n","pub mod http;\npub mod invalid;\n"))
sub('credentials.rs',
 ("use zeroize::Zeroizing;\n\n/// Those","use zeroize::Zeroizing;\n\nuse super::invalid::Invalid;\n\n/// Those"),
 ("require(&self, key: &str) -> Result<&str, String>","require(&self, key: &'static str) -> Result<&str, Invalid>"),
 ("ok_or_else(|| Self::lacks(key))","ok_or_else(|| Invalid::missing(key))"),
 ("""    /// How it is said that a key is missing.
    pub fn lacks(key: &str) -> String {
        format!("{key} is missing")
    }

""",""),
 ("""            credentials.require("api_key").unwrap_err(),
            "api_key is missing\"""","""            credentials.require("api_key"),
            Err(Invalid::missing("api_key"))"""))
sub('tls.rs',
 ("use rustls::{ClientConfig, RootCertStore};\n","use rustls::{ClientConfig, RootCertStore};\n\nuse super::invalid::Invalid;\n"),
 ("-> Result<ClientConfig, String>","-> Result<ClientConfig, Invalid>"),
 ("    let mut roots = RootCertStore::empty();\n    if let Some(path)","    let wrong = |what: String| Invalid::new(\"ca_file\", what);\n    let mut roots = RootCertStore::empty();\n    if let Some(path)"),
 ('.map_err(|error| format!("ca_file names a file that cannot be read: {error}"))','.map_err(|error| wrong(format!("names a file that cannot be read: {error}")))'),
 ('''                return Err(
                    "ca_file names a file that holds something else than certificates".to_owned(),
                );''','''                let what = "names a file that holds something else than certificates";
                return Err(wrong(what.to_owned()));'''),
 ('return Err("ca_file names a file that holds no certificate".to_owned());','return Err(wrong("names a file that holds no certificate".to_owned()));'),
 ('.map_err(|error| error.to_string())?','.map_err(|error| wrong(format!("cannot be used: {error}")))?'))
P='providers/'
for f in ['mailgun','postmark','resend','sendgrid']:
    sub(P+f+'.rs',("credentials: &Credentials) -> Result<Self, String>","credentials: &Credentials) -> Result<Self, Invalid>"),
     ("use crate::transport::credentials::Credentials;\n","use crate::transport::credentials::Credentials;\nuse crate::transport::invalid::Invalid;\n"))
sub(P+'mailgun.rs',('Err("domain must be in ASCII: write it as xn--…".to_owned())','Err(Invalid::new(\n                "domain",\n                "must be in ASCII: write it as xn--…",\n            ))'),
  ('fn mailgun(from: &str, extra: &str) -> Result<Mailgun, String>','fn mailgun(from: &str, extra: &str) -> Result<Mailgun, Invalid>'))
sub(P+'ses.rs',("credentials: &Credentials) -> Result<Self, String>","credentials: &Credentials) -> Result<Self, Invalid>"),
 ('Credentials::lacks("region")','Invalid::missing("region")'),
     ("use crate::transport::credentials::Credentials;\n","use crate::transport::credentials::Credentials;\nuse crate::transport::invalid::Invalid;\n"))
sub(P+'sigv4.rs',(") -> Result<Self, String>",") -> Result<Self, Invalid>"),
     ("use crate::transport::credentials::Credentials;\n","use crate::transport::credentials::Credentials;\nuse crate::transport::invalid::Invalid;\n"))
sub(P+'webhook.rs',("credentials: &Credentials) -> Result<Self, String>","credentials: &Credentials) -> Result<Self, Invalid>"),
 ('.ok_or("secret is not whsec_ and 24 to 64 bytes in base64")?','.ok_or_else(|| {\n                Invalid::new("secret", "is not whsec_ and 24 to 64 bytes in base64")\n            })?'),
 ('Credentials::lacks("secret")','Invalid::missing("secret")'),
 ('fn webhook(credentials: &str) -> Result<Webhook, String>','fn webhook(credentials: &str) -> Result<Webhook, Invalid>'),
     ("use crate::transport::credentials::Credentials;\n","use crate::transport::credentials::Credentials;\nuse crate::transport::invalid::Invalid;\n"))
sub(P+'endpoint.rs',("Result<Self, String>","Result<Self, Invalid>"),("Result<Uri, String>","Result<Uri, Invalid>"),
 ('Err("endpoint is missing".to_owned())','Err(Invalid::missing(KEY))'),
 ('let wrong = |what: &str| format!("endpoint {what}");','let wrong = |what: &str| Invalid::new(KEY, what);'),
 ('''            return Err("endpoint must not have a query for this provider".to_owned());''','''            let what = "must not have a query for this provider";
            return Err(Invalid::new(KEY, what));'''),
 ('fn no_address() -> String {\n    "endpoint is no address".to_owned()','fn no_address() -> Invalid {\n    Invalid::new(KEY, "is no address")'),
 ("            Err(problem) => problem,","            Err(invalid) => invalid.to_string(),"),
 ("use hyper::http::uri::{Authority, PathAndQuery, Scheme};\n","use hyper::http::uri::{Authority, PathAndQuery, Scheme};\n\nuse crate::transport::invalid::Invalid;\n\nconst KEY: &str = \"endpoint\";\n"))
s=open(P+'mailbox.rs').read()
s=s.replace("pub fn parse(setting: &str) -> Result<Self, String>","pub fn parse(setting: &str) -> Result<Self, Invalid>")
s=s.replace('let wrong = |what: &str| format!("from {what}");','let wrong = |what: &str| Invalid::new("from", what);')
s=s.replace("Mailbox::parse(setting).unwrap_err(), problem","Mailbox::parse(setting).unwrap_err().to_string(), problem")
open(P+'mailbox.rs','w').write(s)
sub('providers.rs',(") -> Result<Box<dyn Provider>, String>",") -> Result<Box<dyn Provider>, Invalid>"),
 ('_ => Err("provider is not one that mailroom knows".to_owned()),','_ => Err(Invalid::new("provider", "is not one that mailroom knows")),'),
 ("/// What is missing or no good, the name of the key first; never a value.","/// Which key is missing or invalid."),
 ("use super::credentials::Credentials;\n","use super::credentials::Credentials;\nuse super::invalid::Invalid;\n"),
 ('assert_eq!(error, format!("{field} is missing"));','assert_eq!(error, Invalid::missing(field));'),
 ('assert_eq!(error, "from is missing");','assert_eq!(error, Invalid::missing("from"));'))
sub('config.rs',('''    fn tls(&mut self) -> Result<ClientConfig, String> {
        if self.0.is_none() {
            self.0 = Some(tls::config(None, false)?);
        }
        self.0.clone().ok_or_else(String::new)
    }''','''    fn tls(&mut self) -> Result<ClientConfig, Invalid> {
        if let Some(known) = &self.0 {
            return Ok(known.clone());
        }
        Ok(self.0.insert(tls::config(None, false)?).clone())
    }'''),
 (".map_err(|problem| section.error_of(&problem))",".map_err(|invalid| section.invalid(&invalid))"),
 ("use super::http::Conduct;\n","use super::http::Conduct;\nuse super::invalid::Invalid;\n"))
sub('config/section.rs',('''    /// An error that begins with the name of the key that it is about.
    pub(super) fn error_of(&self, problem: &str) -> Error {
        let key = problem.split(' ').next().unwrap_or("");
''','''    /// An error in the line of the key that is invalid, or of the key that names the file with its value.
    pub(super) fn invalid(&self, invalid: &Invalid) -> Error {
        let key = invalid.key;
'''),
 ('self.error_with(given.unwrap_or(key), problem, keys::hint(key))','self.error_with(\n            given.unwrap_or(key),\n            &invalid.to_string(),\n            keys::hint(key),\n        )'),
 ("use crate::transport::credentials::Credentials;\n","use crate::transport::credentials::Credentials;\nuse crate::transport::invalid::Invalid;\n"))
