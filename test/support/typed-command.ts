/** The next steps of a command name `gleaner`, and not `npx gleaner`, however npm started the tests. */
delete process.env.npm_lifecycle_event;
