mod death;
mod flows;
mod kernels;
mod segments;
mod world;
