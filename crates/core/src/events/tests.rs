
mod fixture;
mod payloads;
mod ses;
mod signatures;
mod sns;
mod vectors;
