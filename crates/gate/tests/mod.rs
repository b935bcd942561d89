mod bounds;
mod random;
mod restarts;
mod rules;
mod scene;
