mod choices;
mod differential;
mod followed;
mod maker;
mod refused;
mod scanner;
mod stateless;
mod table;
