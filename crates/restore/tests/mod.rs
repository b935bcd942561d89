mod damage;
mod following;
mod log;
