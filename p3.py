import re
def sub(path, *pairs):
    s=open(path).read()
    for a,b in pairs:
        assert a in s, (path,a)
        s=s.replace(a,b)
    open(path,'w').write(s)
s=open('config.rs').read()
# consts
m=re.search(r"/// Of requests at a time\.\nconst CONCURRENCY: i32 = 64;\n",s); s=s.replace(m.group(0),"")
m=re.search(r"const TIMEOUT: Duration.*?from_secs\(600\);\n",s,re.S); s=s.replace(m.group(0),"")
m=re.search(r"/// The system's authorities, read once\..*?(?=fn build)",s,re.S); s=s.replace(m.group(0),"")
m=re.search(r"fn build\(.*?(?=/// Who mail may be from)",s,re.S)
s=s.replace(m.group(0),'''fn build(section: &Section<'_>, system: &mut System) -> Result<Configured, Error> {
    let provider_name = section.provider()?;
    section.check_names(provider_name)?;
    let from = section.text("from")?.unwrap_or("").trim();
    let made = method::make(section, provider_name, from, system)?;
    let limits = Limits {
        capabilities: made.capabilities,
        concurrency: section
            .concurrency()?
            .unwrap_or(made.concurrency)
            .unsigned_abs() as usize,
        rate: section.read("rate", "a number and a unit", Rate::parse)?,
        max_ambiguous: section
            .number("max_ambiguous", 0..=100)?
            .unwrap_or(MAX_AMBIGUOUS),
        address: [section.name, provider_name, &made.account].join("\\n"),
    };
    Ok(Configured {
        name: section.name.into(),
        provider_name,
        databases: section.list("databases", "the name of a database", |name| {
            (!name.is_empty()).then(|| name.to_owned())
        })?,
        allow_from: allow_from(section, from)?,
        limits,
        method: made.method,
    })
}

''')
m=re.search(r"fn conduct\(.*?(?=#\[cfg\(test\)\])",s,re.S); s=s.replace(m.group(0),"")
s=s.replace('''    /// How to connect.
    pub conduct: Conduct,
}
''','''    /// How it delivers.
    pub method: Method,
}

/// How a transport delivers.
pub enum Method {
    /// By requests to a provider.
    Http {
        /// How the provider is spoken to.
        provider: Arc<dyn Provider>,
        /// How to connect.
        conduct: Conduct,
    },
    /// One message at a time.
    Single(Arc<Single>),
}
''')
s=s.replace("    /// webhook, ses, sendgrid, postmark, resend or mailgun.\n","    /// webhook, ses, sendgrid, postmark, resend, mailgun, smtp, file or log.\n")
s=s.replace("use std::time::Duration;\n\nuse rustls::ClientConfig;\n","\n")
s=s.replace('''use super::http::Conduct;
use super::invalid::Invalid;
use super::network::Networks;
use super::providers::mailbox::Mailbox;
use super::{providers, tls};
''','''use super::http::Conduct;
use super::providers::Provider;
use super::providers::mailbox::Mailbox;
use super::single::Single;
''')
s=s.replace("mod keys;\nmod section;","mod keys;\nmod method;\nmod section;")
s=s.replace("pub use error::Error;\n","pub use error::Error;\nuse method::System;\n")
open('config.rs','w').write(s)

sub('config/section.rs',('''    /// A time.
    pub(super) fn duration''','''    /// The maximum number of concurrent requests, if it is given.
    pub(super) fn concurrency(&self) -> Result<Option<i32>, Error> {
        self.number("concurrency", 1..=1_000)
    }

    /// A time.
    pub(super) fn duration'''),
 ('''        let values = if key == name {
            vec![self.read(key, PRINTABLE, printable)?]
        } else if key == several {
            let list = self.list(key, PRINTABLE, printable)?.unwrap_or_default();
            list.into_iter().map(Some).collect()
        } else {
            self.in_file(key, key == several_in_file)?
        };
''','''        // People choose passwords, providers the others.
        let form: Form = if name == "password" {
            (values::TEXT, values::text)
        } else {
            (PRINTABLE, printable)
        };
        let values = if key == name {
            vec![self.read(key, form.0, form.1)?]
        } else if key == several {
            let list = self.list(key, form.0, form.1)?.unwrap_or_default();
            list.into_iter().map(Some).collect()
        } else {
            self.in_file(key, form, key == several_in_file)?
        };
'''),
 ("fn in_file(&self, key: &str, is_list: bool) -> Result<Vec<Option<Zeroizing<String>>>, Error> {",'''fn in_file(
        &self,
        key: &str,
        (what, read): Form,
        is_list: bool,
    ) -> Result<Vec<Option<Zeroizing<String>>>, Error> {'''),
 ("parts.into_iter().map(printable).collect();","parts.into_iter().map(read).collect();"),
 ('format!("what is in the file that {key} names is not {PRINTABLE}")','format!("what is in the file that {key} names is not {what}")'),
 ('''/// How a credential looks.
const PRINTABLE''','''/// What a value is to be, in words, and what reads it.
type Form = (&'static str, fn(&str) -> Option<Zeroizing<String>>);

/// How a credential looks that a provider issued.
pub(super) const PRINTABLE'''),
 ("\nfn printable(","\npub(super) fn printable("))
sub('config/values.rs',("use std::time::Duration;\n\nuse crate::address;\n","use std::time::Duration;\n\nuse zeroize::Zeroizing;\n\nuse crate::address;\n"),
 ('''/// An address, or `*@domain`''','''/// How a name or a password of a person's choice looks.
pub(super) const TEXT: &str = "text without control characters";

/// Reads [`TEXT`].
pub(super) fn text(text: &str) -> Option<Zeroizing<String>> {
    let fits = !text.is_empty() && !text.chars().any(char::is_control);
    // One allocation, of the right size: nothing is left behind unzeroed.
    fits.then(|| Zeroizing::new(text.to_owned()))
}

/// An address, or `*@domain`'''))
s=open('config/keys.rs').read()
s=s.replace('''pub(super) const PROVIDERS: [&str; 6] = [
    "webhook", "ses", "sendgrid", "postmark", "resend", "mailgun",
];''','''pub(super) const PROVIDERS: [&str; 9] = [
    "webhook", "ses", "sendgrid", "postmark", "resend", "mailgun", "smtp", "file", "log",
];''')
s=s.replace('''const SES: &[''','''/// Those that speak HTTP.
const HTTP: &[&str] = &[
    "webhook", "ses", "sendgrid", "postmark", "resend", "mailgun",
];
/// Those that open connections.
const NETWORK: &[&str] = &[
    "webhook", "ses", "sendgrid", "postmark", "resend", "mailgun", "smtp",
];
const SMTP: &[&str] = &["smtp"];
const SES: &[''')
s=s.replace('\\"resend\\" and \\"mailgun\\".','\\"resend\\", \\"mailgun\\", \\"smtp\\", \\"file\\" and \\"log\\".')
for k,of in [('endpoint','HTTP'),('ca_file','NETWORK'),('allowed_networks','NETWORK'),('timeout','NETWORK'),('connect_timeout','NETWORK')]:
    a='    common(\n        "%s",\n'%k
    assert a in s,k
    s=s.replace(a,'    own(\n        "%s",\n        %s,\n'%(k,of))
a='common("concurrency", "Write'
assert a in s
s=s.replace(a,'own("concurrency", NETWORK, "Write')
s=s.replace("KEYS: [Key; 21]","KEYS: [Key; 29]")
a='''    secret(
        "secret",
        WEBHOOK,'''
assert a in s
s=s.replace(a,'''    own(
        "host",
        SMTP,
        "Write the relay's name, as in \\"smtp.example.com\\", or its address; the port has a key of its own.",
    ),
    own(
        "port",
        SMTP,
        "Write a whole number from 1 to 65535; without it, 587, or 465 with tls = \\"implicit\\".",
    ),
    own(
        "tls",
        SMTP,
        "Write \\"starttls\\", the default, \\"implicit\\" (usually port 465) or, for a relay on this machine, without credentials, \\"none\\".",
    ),
    own(
        "username",
        SMTP,
        "Write the user's name at the relay, and password, password_file or token_file with it.",
    ),
    secret(
        "password",
        SMTP,
        "Write the password at the relay, or its file's name as password_file.",
    ),
    own(
        "token_file",
        SMTP,
        "Write the name of a file with an access token for XOAUTH2, in place of a password; it is read for each connection.",
    ),
    own(
        "helo",
        SMTP,
        "Write the name by which the relay knows this machine; without it, the domain of from.",
    ),
    own(
        "directory",
        &["file"],
        "Write the name of a directory that the server's user can write to; a relative one counts from that of the transports file.",
    ),
'''+a)
open('config/keys.rs','w').write(s)
