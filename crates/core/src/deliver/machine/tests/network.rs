//! The network and the provider of the simulation.

use super::*;

impl World {
    /// There is room for these beside the large mails in flight. The probe of a pause needs none.
    fn check_large_mails(&self, mails: &[Mail]) {
        let is_large = |mail: &&Mail| mail.is_large();
        let in_flight = self.requests.values().flat_map(|sent| sent.mails.iter());
        let earlier: usize = in_flight.filter(is_large).map(|mail| mail.size).sum();
        let Some(large) = mails.iter().find(is_large) else {
            return;
        };
        assert_eq!(mails.len(), 1, "a large mail is alone");
        let is_probe = self.deliverer.breaker.is_paused();
        assert!(
            earlier == 0 || is_probe || earlier + large.size <= 32 << 20,
            "too much is in flight"
        );
    }

    pub(super) fn start(&mut self, request: u64, mails: Arc<Vec<Mail>>) {
        assert!(!self.stopped, "nothing is sent after a stop");
        assert!((1..=self.shape.batch).contains(&mails.len()));
        let flying: HashSet<i64> = self
            .requests
            .values()
            .flat_map(|sent| sent.mails.iter().map(|mail| mail.message.id))
            .collect();
        for mail in mails.iter() {
            let id = mail.message.id;
            assert!(!flying.contains(&id), "{id} is under way twice");
            let row = &self.rows[&id];
            assert!(row.claimed && row.ended.is_none(), "{id} is not claimed");
            let is_late = row.expires_at.is_some_and(|end| end <= self.now);
            assert!(!is_late, "{id} has expired");
            if let Some(group) = &row.group {
                let busy = flying
                    .iter()
                    .chain(mails.iter().map(|m| &m.message.id))
                    .filter(|&&other| other != id)
                    .any(|other| self.rows[other].group.as_ref() == Some(group));
                assert!(!busy, "two of a group at a time");
            }
        }
        self.check_large_mails(&mails);
        self.check_rate(&mails);
        self.sizes.push(mails.len());
        let delay = self.slow + Duration::from_millis(1 + self.random(300));
        let sent = Sent {
            at: self.now + delay,
            mails,
            provider: self.provider,
        };
        self.requests.insert(request, sent);
    }

    /// No more than the burst and the rate, but for a mail that alone needs more than the burst.
    pub(super) fn check_rate(&mut self, mails: &[Mail]) {
        let Some(rate) = self.shape.rate else {
            return;
        };
        let number: f64 = rate.split(' ').next().unwrap().parse().unwrap();
        let cost = match Rate::parse(rate).unwrap().unit() {
            Unit::Requests => 1.0,
            Unit::Messages => mails.len() as f64,
            Unit::Recipients => {
                let counts = mails.iter().map(|mail| mail.message.recipients.len());
                counts.sum::<usize>() as f64
            }
        };
        let (left, since) = self.allowance;
        let passed = (self.now - since).as_secs_f64();
        let left = (left + passed * number).min(number);
        assert!(
            left >= cost.min(number) - 1e-3,
            "{cost} of {left} left, {rate}"
        );
        assert!(cost <= number || mails.len() == 1 || self.shape.idempotent);
        self.allowance = (left - cost, self.now);
    }

    /// The provider takes these, unless it knows the request.
    pub(super) fn take(&mut self, mails: &[Mail]) {
        if mails.is_empty() {
            return;
        }
        // A provider knows a request again only if it is the same to the byte, so in the same order.
        let ids: Vec<i64> = mails.iter().map(|mail| mail.message.id).collect();
        if ids.iter().any(|id| self.rows[id].bad) {
            // Refused, and the response is lost.
            return;
        }
        if self.shape.idempotent && !self.known.insert(ids.clone()) {
            return;
        }
        for id in ids {
            let row = self.rows.get_mut(&id).unwrap();
            row.copies += 1;
        }
    }

    pub(super) fn land(&mut self, request: u64) {
        let sent = self.requests.remove(&request).unwrap();
        let count = sent.mails.len();
        if let Some(respond) = &mut self.respond {
            let (status, outcomes) = respond(self.now, &sent.mails);
            if status == Some(200) {
                self.take(&sent.mails);
                self.taken += 1;
            }
            let result = RequestResult {
                outcomes,
                status,
                ..RequestResult::default()
            };
            return self.say(Event::RequestDone { request, result });
        }
        let mut status = None;
        let outcomes = match sent.provider {
            ProviderState::Up => {
                let rows = &self.rows;
                let is_bad = |mail: &Mail| rows[&mail.message.id].bad;
                let invented: HashSet<i64> = sent
                    .mails
                    .iter()
                    .map(|mail| mail.message.id)
                    .filter(|id| self.rows[id].invented)
                    .collect();
                let is_invented = |mail: &Mail| invented.contains(&mail.message.id);
                if count > 1 && sent.mails.iter().any(is_bad) {
                    status = Some(422);
                    let reason = "http 422".to_owned();
                    vec![MessageOutcome::SendAlone { reason }; count]
                } else if sent.mails.iter().any(is_invented) {
                    let good: Vec<Mail> = sent
                        .mails
                        .iter()
                        .filter(|mail| !is_invented(mail))
                        .cloned()
                        .collect();
                    self.take(&good);
                    self.taken += usize::from(!good.is_empty());
                    status = Some(if good.is_empty() { 422 } else { 200 });
                    let outcome_of = |mail: &Mail| {
                        if is_invented(mail) {
                            let reason = "http 422 406".to_owned();
                            MessageOutcome::RecipientRefused {
                                reason,
                                is_permanent: true,
                            }
                        } else {
                            MessageOutcome::Sent { provider_id: None }
                        }
                    };
                    sent.mails.iter().map(outcome_of).collect()
                } else if rows[&sent.mails[0].message.id].poison {
                    status = Some(503);
                    let reason = "http 503".to_owned();
                    vec![MessageOutcome::Retry {
                        reason,
                        after: None,
                    }]
                } else if sent
                    .mails
                    .iter()
                    .any(|mail| rows[&mail.message.id].unwelcome)
                {
                    status = Some(429);
                    let reason = "http 429".to_owned();
                    vec![
                        MessageOutcome::Throttled {
                            reason,
                            after: None
                        };
                        count
                    ]
                } else if is_bad(&sent.mails[0]) {
                    status = Some(422);
                    let reason = "http 422".to_owned();
                    vec![MessageOutcome::Refused { reason }]
                } else {
                    self.take(&sent.mails);
                    self.taken += 1;
                    status = Some(200);
                    vec![MessageOutcome::Sent { provider_id: None }; count]
                }
            }
            ProviderState::ResponseLost | ProviderState::RequestLost => {
                if sent.provider == ProviderState::ResponseLost {
                    self.take(&sent.mails);
                }
                let reason = "timeout".to_owned();
                vec![MessageOutcome::Ambiguous { reason }; count]
            }
            ProviderState::RefusesMessages => {
                status = Some(400);
                let reason = "http 400".to_owned();
                let outcome_of = if count > 1 {
                    MessageOutcome::SendAlone { reason }
                } else {
                    MessageOutcome::Refused { reason }
                };
                vec![outcome_of; count]
            }
            ProviderState::RefusesAccount => {
                status = Some(401);
                let reason = "http 401".to_owned();
                vec![MessageOutcome::AccountRefused { reason }; count]
            }
            ProviderState::Throttles | ProviderState::ThrottlesForAnHour => {
                status = Some(429);
                let outcome_of = MessageOutcome::Throttled {
                    reason: "http 429".to_owned(),
                    after: (sent.provider == ProviderState::ThrottlesForAnHour)
                        .then_some(Duration::from_secs(3_600)),
                };
                vec![outcome_of; count]
            }
            ProviderState::Fails => {
                status = Some(503);
                let outcome_of = MessageOutcome::Retry {
                    reason: "http 503".to_owned(),
                    after: None,
                };
                vec![outcome_of; count]
            }
            ProviderState::Unreachable => {
                let reason = "no connection".to_owned();
                vec![MessageOutcome::NoConnection { reason }; count]
            }
            ProviderState::NotProvider => {
                status = Some(200);
                let reason = "http 200 without a sign".to_owned();
                vec![MessageOutcome::NotProvider { reason }; count]
            }
            ProviderState::EndpointDenied => {
                let reason = "not public".to_owned();
                vec![MessageOutcome::EndpointDenied { reason }; count]
            }
        };
        if let [MessageOutcome::Refused { .. }] = outcomes[..] {
            let row = self.rows.get_mut(&sent.mails[0].message.id).unwrap();
            let (first, _) = row.refused.unwrap_or((self.taken, 0));
            row.refused = Some((first, self.taken));
        }
        self.say(Event::RequestDone {
            request,
            result: RequestResult {
                outcomes,
                status,
                ..RequestResult::default()
            },
        });
    }
}
