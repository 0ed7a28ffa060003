//! A server that delivers.
