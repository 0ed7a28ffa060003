//! Tests of events: payloads beside another program's reading of them, signatures of other programs, and hostile requests.

mod fixture;
mod hostile;
mod payloads;
mod ses;
mod signatures;
mod sns;
mod vectors;
