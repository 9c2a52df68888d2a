//! One request and its response: checks before the router, and what every response carries.

pub mod answer;
mod finish;
mod login;
mod memory;
mod place;
mod route;
mod under_way;
