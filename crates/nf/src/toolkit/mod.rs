//! What several network functions need, for their writers: tables of flows, fragments, outer
//! headers, ICMP errors, lists of rules and files that are written line by line.

pub mod conversation;
pub mod flow_table;
pub mod fragment;
pub mod icmp_error;
pub mod outer;
pub mod output;
pub mod rules;
pub mod view;
