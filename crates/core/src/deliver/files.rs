//! The files of claimed mails, read after the claim: by the worker in its transaction, by `mailroom send` in the next one.

use std::collections::HashMap;

use bytes::Bytes;

use super::exchange::Claimed;
use super::settlements::{FailedAttempt, FailedMail, Settlements};
use crate::attachment::Attachment;
use crate::row::{Column, ReadError, Row};

/// The files of some mails, from the rows of `attachments.sql`.
#[derive(Default)]
pub struct Files {
    /// By `outbox_files.id`.
    contents: HashMap<i64, Bytes>,
    /// By `outbox.id`, in their order; or why a mail cannot be sent.
    of_mails: HashMap<i64, Result<Vec<Attachment>, String>>,
}

impl Files {
    /// The mails that have files.
    pub fn wanted(claimed: &Claimed) -> Vec<i64> {
        let mails = claimed
            .mails
            .iter()
            .filter(|mail| mail.attachment_bytes.is_some());
        mails.map(|mail| mail.message.id).collect()
    }

    /// Reads a row. The first row of a file has its contents; mails share them.
    ///
    /// # Errors
    /// As [`Row::Error`].
    pub fn read<R: Row>(&mut self, row: &R) -> Result<(), R::Error> {
        let id = |column| {
            let id = row.bigint(column)?;
            id.ok_or_else(|| R::unexpected_null(column))
        };
        let (mail, file) = (id("outbox_id")?, id("file_id")?);
        if let Some(content) = row.bytes("content")? {
            self.contents.insert(file, Bytes::from(content));
        }
        let attachment = match self.attachment(row, file) {
            Ok(attachment) => attachment,
            Err(ReadError::NotText(column)) => {
                let reason = FailedAttempt::not_text(column).reason;
                self.of_mails.insert(mail, Err(reason));
                return Ok(());
            }
            Err(ReadError::Row(error)) => return Err(error),
        };
        let files = self.of_mails.entry(mail).or_insert(Ok(Vec::new()));
        match (attachment, files) {
            (Some(attachment), Ok(files)) => files.push(attachment),
            (None, files @ Ok(_)) => *files = Err("a file of it was deleted".to_owned()),
            (_, Err(_)) => {}
        }
        Ok(())
    }

    /// Notes that the server cannot convert the rows of this mail.
    pub fn refuse(&mut self, mail: i64) {
        let reason = FailedAttempt::not_text("a name of a file").reason;
        self.of_mails.insert(mail, Err(reason));
    }

    /// One file; `None` if its contents were deleted.
    fn attachment<R: Row>(
        &self,
        row: &R,
        file: i64,
    ) -> Result<Option<Attachment>, ReadError<R::Error>> {
        let filename = Column::read(row, "filename")?;
        let content_type = Column::read(row, "content_type")?;
        let content_id = Column::read(row, "content_id")?;
        Ok(self.contents.get(&file).map(|content| Attachment {
            filename,
            content_type,
            content_id,
            content: content.clone(),
        }))
    }

    /// Gives the mails their files. A mail that lacks one goes to `rest`: it ends.
    pub fn give(mut self, claimed: &mut Claimed, rest: &mut Settlements) {
        let mut give = |mut mail: super::mail::Mail| {
            let Some(bytes) = mail.attachment_bytes else {
                return Some(mail);
            };
            let reason = match self.of_mails.remove(&mail.message.id) {
                Some(Ok(files)) if total(&files) == bytes => {
                    mail.message.attachments = files;
                    return Some(mail);
                }
                Some(Err(reason)) => reason,
                Some(Ok(_)) => "some of its attachments were deleted".to_owned(),
                None => "its attachments were deleted".to_owned(),
            };
            rest.failed.push(FailedMail {
                claim: mail.claim(),
                attempt: FailedAttempt::permanent(reason),
            });
            None
        };
        claimed.mails = std::mem::take(&mut claimed.mails)
            .into_iter()
            .filter_map(&mut give)
            .collect();
    }
}

/// What these files have together, in bytes.
fn total(files: &[Attachment]) -> i64 {
    let bytes = files.iter().map(|file| file.content.len()).sum::<usize>();
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deliver::fixture::mail;

    struct Fake {
        mail: i64,
        file: i64,
        content: Option<&'static [u8]>,
        is_text: bool,
    }

    impl Row for Fake {
        type Error = String;

        fn unexpected_null(column: &str) -> String {
            column.to_owned()
        }

        fn boolean(&self, column: &'static str) -> Result<Option<bool>, String> {
            Err(column.to_owned())
        }

        fn integer(&self, column: &'static str) -> Result<Option<i32>, String> {
            Err(column.to_owned())
        }

        fn bigint(&self, column: &'static str) -> Result<Option<i64>, String> {
            Ok(Some(match column {
                "outbox_id" => self.mail,
                _ => self.file,
            }))
        }

        fn double(&self, column: &'static str) -> Result<Option<f64>, String> {
            Err(column.to_owned())
        }

        fn text(&self, column: &'static str) -> Result<Option<String>, ReadError<String>> {
            match column {
                "content_id" => Ok(None),
                _ if !self.is_text => Err(ReadError::NotText(column)),
                _ => Ok(Some(format!("{} of {}", self.file, self.mail))),
            }
        }

        fn texts(&self, column: &'static str) -> Result<Option<Vec<String>>, ReadError<String>> {
            Err(ReadError::Row(column.to_owned()))
        }

        fn bytes(&self, _column: &'static str) -> Result<Option<Vec<u8>>, String> {
            Ok(self.content.map(<[u8]>::to_vec))
        }
    }

    fn row(mail: i64, file: i64, content: Option<&'static [u8]>) -> Fake {
        Fake {
            mail,
            file,
            content,
            is_text: true,
        }
    }

    #[test]
    fn mails_share_a_file_and_one_that_lacks_one_ends_alone() {
        let mut files = Files::default();
        for row in [
            row(1, 10, Some(b"ten")),
            row(1, 11, Some(b"eleven")),
            row(2, 10, None),
            row(3, 12, None),
            row(3, 10, None),
            Fake {
                is_text: false,
                ..row(4, 10, None)
            },
            row(4, 10, None),
            row(8, 10, None),
        ] {
            files.read(&row).unwrap();
        }
        files.refuse(7);
        let (mut claimed, mut rest) = (Claimed::default(), Settlements::default());
        for (id, bytes) in (1..).zip([9, 3, 3, 3, 3, 0, 3, 4]) {
            let mut mail = mail(id);
            mail.attachment_bytes = (bytes > 0).then_some(bytes);
            claimed.mails.push(mail);
        }
        assert_eq!(Files::wanted(&claimed), [1, 2, 3, 4, 5, 7, 8]);
        files.give(&mut claimed, &mut rest);
        let told: Vec<_> = claimed
            .mails
            .iter()
            .map(|mail| {
                let files = mail.message.attachments.iter();
                let files = files.map(|one| (one.filename.as_str(), &one.content[..]));
                (mail.message.id, files.collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(
            told,
            [
                (1, vec![("10 of 1", &b"ten"[..]), ("11 of 1", b"eleven")]),
                (2, vec![("10 of 2", &b"ten"[..])]),
                (6, vec![]),
            ]
        );
        let first = &claimed.mails[0].message.attachments[0].content;
        let second = &claimed.mails[1].message.attachments[0].content;
        assert_eq!(first.as_ptr(), second.as_ptr(), "no copy");
        let ended: Vec<_> = rest
            .failed
            .iter()
            .map(|one| (one.claim.id, one.attempt.reason.as_str()))
            .collect();
        assert_eq!(
            ended,
            [
                (3, "a file of it was deleted"),
                (
                    4,
                    "filename holds bytes that are no characters in the database's encoding"
                ),
                (5, "its attachments were deleted"),
                (
                    7,
                    "a name of a file holds bytes that are no characters in the database's encoding"
                ),
                (8, "some of its attachments were deleted"),
            ]
        );
        assert!(rest.failed.iter().all(|one| one.attempt.permanent));
    }
}
