//! Mail with files.

use super::*;

#[test]
fn each_file_names_its_encoding() {
    let ses = ses("region = us-east-1");
    let message = fixture::with_files();
    let request = ses.request(&[&message], UNIX_EPOCH).unwrap();
    assert_eq!(
        json::parse(&request.body)["Content"]["Simple"]["Attachments"],
        json!([
            {
                "FileName": "Rechnung \"für\" Zoë 📎.pdf",
                "ContentType": "application/pdf",
                "ContentDisposition": "ATTACHMENT",
                "ContentTransferEncoding": "BASE64",
                "RawContent": fixture::PDF,
            },
            {
                "FileName": "logo.png",
                "ContentType": "image/png",
                "ContentDisposition": "INLINE",
                "ContentId": "logo@example.com",
                "ContentTransferEncoding": "BASE64",
                "RawContent": fixture::PNG,
            },
        ])
    );
}

/// In a bulk request all mails would get the files.
#[test]
fn a_mail_with_files_is_in_no_bulk_request() {
    let ses = ses("region = us-east-1");
    let with_files = Message {
        attachments: fixture::files(),
        ..fixture::plain(2)
    };
    let both = [&fixture::plain(1), &with_files];
    let refused = ses.request(&both, UNIX_EPOCH).err().unwrap();
    assert_eq!(refused, "a mail with files needs a request of its own");
}
