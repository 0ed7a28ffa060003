//! What must not have leaked: credentials, signed tokens, links and codes, wherever one might read them.

use postgres::Client;

use crate::cluster::Cluster;
