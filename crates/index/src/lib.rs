pub mod reduce;
