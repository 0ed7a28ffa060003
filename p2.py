import re,os
def sub(path, *pairs):
    s=open(path).read()
    for a,b in pairs:
        assert a in s, (path,a)
        s=s.replace(a,b)
    open(path,'w').write(s)
MOVE=('batch_limit','may_share','is_idempotent','remembers_for')
def split(path):
    s=open(path).read()
    m=re.search(r'^( *)impl Provider for (\w+) \{\n(.*?)^\1\}\n',s,re.S|re.M)
    ind=m.group(1); body=m.group(3)
    # split items by blank line between fns at indent+4
    items=re.split(r'\n(?=%s    (?:///|fn |#\[))'%ind,body)
    mv=[];st=[]
    for it in items:
        n=re.search(r'fn (\w+)',it).group(1)
        (mv if n in MOVE else st).append(it.rstrip('\n')+'\n')
    out=f"{ind}impl Capabilities for {m.group(2)} {{\n"+'\n'.join(mv)+f"{ind}}}\n\n{ind}impl Provider for {m.group(2)} {{\n"+'\n'.join(st)+f"{ind}}}\n"
    s=s[:m.start()]+out+s[m.end():]
    open(path,'w').write(s)
P='transport/providers/'
for f in ['ses','mailgun','webhook','resend','sendgrid','postmark']:
    split(P+f+'.rs')
    sub(P+f+'.rs',("use crate::transport::credentials::Credentials;\n","use crate::transport::capabilities::Capabilities;\nuse crate::transport::credentials::Credentials;\n"))
split('deliver/machine/tests.rs'); split('deliver/memory.rs')
s=open('transport/providers.rs').read()
m=re.search(r'/// How one provider is spoken to\.\npub trait Provider: Send \+ Sync \{\n(.*?)    /// The request that carries',s,re.S)
s=s[:m.start()]+"/// How one provider is spoken to.\npub trait Provider: Capabilities {\n    /// The request that carries"+s[m.end():]
s=s.replace("never more than [`Provider::batch_limit`]","never more than [`Capabilities::batch_limit`]")
s=s.replace("use super::credentials::Credentials;\n","use super::capabilities::Capabilities;\nuse super::credentials::Credentials;\n",1)
open('transport/providers.rs','w').write(s)
sub('transport.rs',("//! | [`providers`] |","//! | [`capabilities`] | what a transport can do with several messages, and with a repeated one (pure) |\n//! | [`providers`] |"),
 ("mod calendar;\n","mod calendar;\npub mod capabilities;\n"))
sub('deliver/memory.rs',("    use crate::transport::providers::{Answer","    use crate::transport::capabilities::Capabilities;\n    use crate::transport::providers::{Answer"),
 ("let provider = &self.limits.as_ref()?.provider;","let provider = &self.limits.as_ref()?.capabilities;"),
 ("provider: Arc::new(Forgetful)","capabilities: Arc::new(Forgetful)"))
sub('deliver/machine/tests.rs',("            provider: Arc::new(Fake","            capabilities: Arc::new(Fake"))
sub('deliver/pick.rs',("&limits.provider;","&limits.capabilities;"),("limits.provider.batch_limit","limits.capabilities.batch_limit"))
sub('deliver/intake.rs',("limits.provider.is_idempotent","limits.capabilities.is_idempotent"))
sub('deliver/events.rs',("    /// Whom to speak to.\n    pub provider: Arc<dyn Provider>,","    /// What a request may hold, and whether it may be repeated.\n    pub capabilities: Arc<dyn Capabilities>,"),
 ("use crate::transport::providers::{Provider, Verdict};","use crate::transport::capabilities::Capabilities;\nuse crate::transport::providers::Verdict;"),
 ("    /// So many mails ended as errors, the latest for this reason.\n    Ended(u64, String),\n","""    /// So many mails ended as errors, the latest for this reason.
    Ended(u64, String),
    /// A mail was sent, but not to all its recipients.
    RecipientsRefused {
        /// `outbox.id`.
        id: i64,
        /// How many recipients were refused.
        count: usize,
        /// Of the first, without its address.
        reason: String,
    },
    /// A mail as a line, from a transport that writes it to the log instead of sending it.
    Logged(String),
"""))
sub('deliver/owner.rs',('''                "Look at outbox_attempts; mailroom_retry_failed puts them back.",
            ),
''','''                "Look at outbox_attempts; mailroom_retry_failed puts them back.",
            ),
            News::RecipientsRefused { id, count, reason } => self.log(&format!(
                ": mail {id} was sent through transport \\"{transport}\\" without {count} of its recipients, who were refused: {reason}"
            )),
            News::Logged(mail) => self.log(&format!(": transport \\"{transport}\\": {mail}")),
'''))
# relay / directory
sub('transport/smtp.rs',("pub fn new(settings: Settings) -> Result<Self, String>","pub fn new(settings: Settings) -> Result<Self, Invalid>"),
 ('return Err("the name for EHLO is not printable ASCII without spaces".to_owned());','return Err(Invalid::new(\n                "helo",\n                "is not printable ASCII without spaces",\n            ));'),
 ('''        if settings.host.is_empty() {
            return Err("there is no host".to_owned());
        }
''','''        if settings.host.is_empty() {
            return Err(Invalid::missing("host"));
        }
        if dial::server_name(&settings.host).is_none() {
            return Err(Invalid::new("host", "is neither a name nor an address"));
        }
'''),
 ('return Err("credentials are never sent in clear: set tls or no username".to_owned());','return Err(Invalid::new(\n                "tls",\n                "is \\"none\\", and credentials are never sent unencrypted",\n            ));'),
 ("use super::delivered::{Delivered, Failure};\n","use super::delivered::{Delivered, Failure};\nuse super::invalid::Invalid;\n"))
sub('transport/smtp/dial.rs',('''    let bare = peer.host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(bare.to_owned())
        .map_err(|_| unreached("the host is not a name that a certificate can have"))?;
''','''    let name = server_name(&peer.host)
        .ok_or_else(|| unreached("the host is not a name that a certificate can have"))?;
'''),('''/// Performs the TLS handshake;''','''/// The host as a certificate names it; `None` if it is neither a name nor an address.
pub(super) fn server_name(host: &str) -> Option<ServerName<'static>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned()).ok()
}

/// Performs the TLS handshake;'''))
sub('transport/file.rs',("pub fn new(path: PathBuf, from: &str) -> Result<Self, String>","pub fn new(path: PathBuf, from: &str) -> Result<Self, Invalid>"),
 ('return Err(format!("the path \\"{}\\" is not absolute", path.display()));','return Err(Invalid::new("directory", "is not an absolute path"));'),
 ("use super::delivered::{Delivered, Failure};\n","use super::delivered::{Delivered, Failure};\nuse super::invalid::Invalid;\n"))
