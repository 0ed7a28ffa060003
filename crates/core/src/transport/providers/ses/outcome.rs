//! What the responses of SES mean. Pure.

use serde_json::Value;

use super::{MessageOutcome, Response, classify};

/// The name of an error: in a header `MessageRejected:http://…`, or in the body, with or without a prefix.
fn error_name<'a>(response: &'a Response<'_>, body: &'a Value) -> Option<&'a str> {
    let text = classify::text(response.headers, "x-amzn-errortype").or_else(|| {
        ["__type", "code", "type"]
            .iter()
            .find_map(|name| body[name].as_str())
    })?;
    let text = text.rsplit('#').next().unwrap_or(text);
    classify::code(text.split(':').next().unwrap_or(text))
}

/// The outcome of the mails of a request that was refused.
pub(super) fn refusal(response: &Response<'_>, body: &Value) -> MessageOutcome {
    let name = error_name(response, body);
    let reason = || classify::reason(response.status, name);
    let broken = |why: &str| MessageOutcome::AccountRefused {
        reason: format!("{}: {why}", reason()),
    };
    // The same name is used for errors of a message and of the account. The text of the error is read, and not kept.
    let says = |words: &str| {
        ["message", "Message"].iter().any(|member| {
            body[member]
                .as_str()
                .is_some_and(|text| text.to_ascii_lowercase().contains(words))
        })
    };
    match name.unwrap_or("") {
        "MessageRejected" if says("not verified") => broken("the sender's address is not verified"),
        // The quota of a day; the rate of a second has a name of its own.
        "TooManyRequestsException" | "ThrottlingException" | "Throttling" if says("quota") => {
            broken("the quota is spent")
        }
        "TooManyRequestsException" | "ThrottlingException" | "Throttling" => {
            classify::throttled(response, name)
        }
        "MessageRejected" | "BadRequestException" => MessageOutcome::Refused { reason: reason() },
        "LimitExceededException" => broken("the quota is spent"),
        "AccountSuspendedException" | "SendingPausedException" => broken("the account cannot send"),
        "MailFromDomainNotVerifiedException" => broken("the sender's domain is not verified"),
        "NotFoundException" => broken("there is no such configuration set"),
        "RequestExpired" | "RequestTimeTooSkewed" => broken("the clock of this machine is wrong"),
        "SignatureDoesNotMatch" | "InvalidSignatureException"
            if says("signature expired") || says("not yet current") =>
        {
            broken("the clock of this machine is wrong")
        }
        // Both are part of the signature.
        "SignatureDoesNotMatch" | "InvalidSignatureException" => {
            broken("the secret access key or the clock is wrong")
        }
        "AccessDeniedException"
        | "ExpiredTokenException"
        | "IncompleteSignature"
        | "IncompleteSignatureException"
        | "InvalidClientTokenId"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "NotAuthorized"
        | "OptInRequired"
        | "UnrecognizedClientException" => broken("the credentials were refused"),
        _ => classify::by_status(response, name),
    }
}

/// The outcome of one mail of a batch; `None` if its result is none that SES makes.
pub(super) fn entry(result: &Value, response: &Response<'_>) -> Option<MessageOutcome> {
    let status = result["Status"].as_str().and_then(classify::code);
    let reason = || classify::reason(response.status, status);
    let broken = |why: &str| MessageOutcome::AccountRefused {
        reason: format!("{}: {why}", reason()),
    };
    Some(match status.unwrap_or("") {
        "SUCCESS" => MessageOutcome::Sent {
            provider_id: classify::id(result["MessageId"].as_str().filter(|id| !id.is_empty())?),
        },
        "TRANSIENT_FAILURE" => classify::retry(response, status),
        "ACCOUNT_THROTTLED" => classify::throttled(response, status),
        // Sent alone, the mail gets an error that distinguishes message and account.
        "MESSAGE_REJECTED"
        | "INVALID_PARAMETER"
        | "FAILED"
        | "TEMPLATE_NOT_FOUND"
        | "TEMPLATE_DOES_NOT_EXIST" => MessageOutcome::SendAlone { reason: reason() },
        "ACCOUNT_DAILY_QUOTA_EXCEEDED" => broken("the quota is spent"),
        "ACCOUNT_SUSPENDED" | "ACCOUNT_SENDING_PAUSED" => broken("the account cannot send"),
        "MAIL_FROM_DOMAIN_NOT_VERIFIED" => broken("the sender's domain is not verified"),
        "CONFIGURATION_SET_NOT_FOUND"
        | "CONFIGURATION_SET_DOES_NOT_EXIST"
        | "CONFIGURATION_SET_SENDING_PAUSED"
        | "INVALID_SENDING_POOL_NAME" => broken("the configuration set cannot send"),
        _ => return None,
    })
}
