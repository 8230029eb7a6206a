-- One login per role of an installation, on a server that nobody else reaches and that ends with the demo.
CREATE ROLE demo LOGIN PASSWORD 'demo' IN ROLE dispatch_submitter;
CREATE ROLE reader LOGIN PASSWORD 'reader' IN ROLE dispatch_reader;
CREATE ROLE task LOGIN PASSWORD 'task' IN ROLE dispatch_task;
CREATE ROLE janitor LOGIN PASSWORD 'janitor' IN ROLE dispatch_janitor;
CREATE ROLE observer LOGIN PASSWORD 'observer' IN ROLE dispatch_observer;
